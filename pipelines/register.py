"""Stage register: promote the best model of each application if the rule allows it."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path
from typing import Any

from voxcast import config
from voxcast.config.served_facts import app_facts, promotion_rule
from voxcast.errors import exits_cleanly
from voxcast.files import read_json, write_json
from voxcast.records import as_fields
from voxcast.serving.model_store import ModelStore
from voxcast.tracking import registry, runs
from voxcast.tracking.challengers import challengers
from voxcast.tracking.promotion import promote, publish_champion
from voxcast.tracking.runs import log_finals, log_search

EVALUATED = Path("results/evaluate")
RECEIPT = Path("results/register/receipt.json")


@exits_cleanly
def main() -> int:
    """Log the pass in MLflow; register the champions, or leave the registry as it was."""
    cfg = config.load()
    session = runs.connect(Path())
    evaluated = read_json(EVALUATED / "families.json")
    receipts: dict[str, Any] = {}
    by_app = challengers(Path(), cfg.tune.folds, cfg.tune.seed)
    log_search(session, Path(), by_app, cfg.campaign.name, as_fields(cfg.campaign))
    log_finals(session, Path(), by_app, evaluated)
    for name, challenger in by_app.items():
        app = app_facts(cfg, name, challenger.table)
        receipts[name] = promote(session, Path(), app, challenger, promotion_rule(cfg))
        receipts[name]["test"] = evaluated.get(name, {}).get(challenger.family)
    publish_champion(session, Path())
    version = ModelStore.of(Path()).pointer().champion
    write_json(RECEIPT, {"model": registry.MODEL_NAME, "version": version, "apps": receipts})
    registry.write_marker(Path(), session.experiment_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
