"""Stage register: promote the best model by cross-validation if the rule allows it."""

import json
import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import censored_of, volumes_of
from voxcast.files import read_json, sha256_file, sha256_of, write_json
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.tracking import registry, runs
from voxcast.tracking.promotion import Rule, promote

TRAIN = Path("data/features/train.parquet")
CENSORED = Path("data/features/censored.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
EVALUATED = Path("results/evaluate")
RECEIPT = Path("results/register/receipt.json")


@exits_cleanly
def main() -> int:
    """Write the receipt; register the champion, or leave the registry as it was."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    leaderboard = load_leaderboard(Path("data/tune"), table["cell_key"].tolist())
    receipt = promote(
        runs.connect(Path()),
        Validation(
            table,
            volumes_of(table, VOLUMES),
            cfg.tune.folds,
            cfg.tune.seed,
            censored=censored_of(CENSORED),
        ),
        sha256_file(TRAIN),
        leaderboard,
        Path("data/models"),
        {
            # Only applications and configurations that were measured.
            "apps": {
                name: app.parameters for name, app in cfg.apps.items() if name in set(table["app"])
            },
            "configurations": [
                c.to_record() for c in cfg.configurations() if c.device in set(table["device"])
            ],
            "coarse_points": cfg.features.coarse_points,
            "network_points": cfg.features.network_points,
        },
        Rule(
            cfg.evaluation.upper_quantile,
            cfg.evaluation.max_under_request,
            cfg.evaluation.uncalibrated_factor,
            sha256_of(cfg.images.model_dump()),
        ),
    )
    receipt["test"] = read_json(EVALUATED / "families.json").get(leaderboard.best)
    # Openings of the current test table, whose hash is on the last line.
    log = (EVALUATED / "openings.jsonl").read_text(encoding="utf-8").splitlines()
    opened = [json.loads(line)["table_sha256"] for line in log]
    receipt["test_openings"] = opened.count(opened[-1])
    write_json(RECEIPT, receipt)
    registry.write_marker(Path(), receipt["version"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
