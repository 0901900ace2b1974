"""Stage register: promote the best model of each application if the rule allows it."""

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.by_app import tables_by_app
from voxcast.features.table import censored_of, volumes_of
from voxcast.files import read_json, sha256_file, write_json
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.tracking import registry, runs
from voxcast.tracking.promotion import AppFacts, Challenger, Rule, promote

TRAIN = Path("data/features/train.parquet")
CENSORED = Path("data/features/censored.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
EVALUATED = Path("results/evaluate")
RECEIPT = Path("results/register/receipt.json")


@exits_cleanly
def main() -> int:
    """Write the receipt; register the champions, or leave the registry as it was."""
    cfg = config.load()
    session = runs.connect(Path())
    table_sha256, censored = sha256_file(TRAIN), censored_of(CENSORED)
    evaluated = read_json(EVALUATED / "families.json")
    rule = Rule(
        cfg.evaluation.upper_quantile,
        cfg.evaluation.max_under_request,
        cfg.evaluation.uncalibrated_factor,
    )
    receipts: dict[str, Any] = {}
    for name, table in tables_by_app(pd.read_parquet(TRAIN)).items():
        validation = Validation(
            table,
            volumes_of(table, VOLUMES),
            cfg.tune.folds,
            cfg.tune.seed,
            censored=censored,
        )
        leaderboard = load_leaderboard(Path("data/tune") / name, table["cell_key"].tolist())
        challenger = Challenger(validation, table_sha256, leaderboard, Path("data/models") / name)
        app = AppFacts(
            name,
            cfg.apps[name].version,
            cfg.apps[name].parameters,
            # Only devices on which it was measured.
            [c for c in cfg.configurations() if c.device in set(table["device"])],
            cfg.features.coarse_points,
            cfg.features.network_points,
        )
        receipts[name] = promote(session, app, challenger, rule)
        receipts[name]["test"] = evaluated.get(name, {}).get(leaderboard.best)
    champion = registry.champion()
    version = None if champion is None else champion.number
    # Openings of the current test table, whose hash is on the last line.
    log = (EVALUATED / "openings.jsonl").read_text(encoding="utf-8").splitlines()
    opened = [json.loads(line)["table_sha256"] for line in log]
    content = {"model": registry.MODEL_NAME, "version": version, "apps": receipts}
    write_json(RECEIPT, {**content, "test_openings": opened.count(opened[-1])})
    registry.write_marker(Path(), version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
