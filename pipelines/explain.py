"""Stage explain: importance of features for the best model, on held-out training subjects."""

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path
from voxcast.models.importance import explain_model
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard_files import load_leaderboard

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
OUT = Path("results/explain")


@exits_cleanly
def main() -> int:
    """Write results/explain."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    leaderboard = load_leaderboard(Path("data/tune"))
    validation = Validation(table, volumes_of(table, VOLUMES), cfg.tune.folds, cfg.tune.seed)
    importance = explain_model(validation, leaderboard.best, leaderboard.params[leaderboard.best])
    tables = {"shuffled": importance.shuffled, "dependence": importance.dependence}
    for name, frame in tables.items():
        with atomic_path(OUT / f"{name}.csv") as partial:
            frame.to_csv(partial, index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    sys.exit(main())
