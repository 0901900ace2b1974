"""Stage explain: what the best model goes by, on training subjects that it had not seen."""

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path
from voxcast.models.importance import explain_model
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard import Leaderboard

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
OUT = Path("results/explain")


@exits_cleanly
def main() -> int:
    """Write results/explain."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    board = Leaderboard.load(Path("data/tune"))
    validation = Validation(table, volumes_of(table, VOLUMES), cfg.tune.folds, cfg.tune.seed)
    found = explain_model(validation, board.best, board.params(board.best))
    for name, frame in (("shuffled", found.shuffled), ("dependence", found.dependence)):
        with atomic_path(OUT / f"{name}.csv") as partial:
            frame.to_csv(partial, index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    sys.exit(main())
