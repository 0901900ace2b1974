"""Stage explain: importance of features for each best model, on held-out training subjects."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.by_app import tables_by_app
from voxcast.features.table import volumes_of
from voxcast.files import atomic_path
from voxcast.models.importance import explain_model
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard_files import load_leaderboard

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
TUNED = Path("data/tune")
OUT = Path("results/explain")


@exits_cleanly
def main() -> int:
    """Write results/explain."""
    cfg = config.load()
    importances = []
    for app, table in tables_by_app(pd.read_parquet(TRAIN)).items():
        leaderboard = load_leaderboard(TUNED / app)
        validation = Validation(table, volumes_of(table, VOLUMES), cfg.tune.folds, cfg.tune.seed)
        best = leaderboard.best
        importances.append(explain_model(validation, best, leaderboard.params[best]))
    tables = {
        "shuffled": pd.concat([importance.shuffled for importance in importances]),
        "dependence": pd.concat([importance.dependence for importance in importances]),
    }
    for name, frame in tables.items():
        with atomic_path(OUT / f"{name}.csv") as partial:
            frame.to_csv(partial, index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    sys.exit(main())
