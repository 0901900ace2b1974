"""Stage explain: the importance of features for each best model, on held-out training subjects."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.files import atomic_path
from voxcast.models.explanation import explain_model
from voxcast.models.selection.cross_validation import validations
from voxcast.models.selection.leaderboard import load_leaderboard

TUNED = Path("data/tune")
OUT = Path("results/explain")


@exits_cleanly
def main() -> int:
    """Write results/explain."""
    cfg = config.load()
    importances = []
    for app, validation in validations(Path(), cfg.tune.folds, cfg.tune.seed).items():
        leaderboard = load_leaderboard(TUNED / app)
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
