"""Stage train: fit and calibrate every family of each application on all its training runs."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.models.selection.cross_validation import validations
from voxcast.models.selection.fitting import fit_forecasters
from voxcast.models.selection.leaderboard import load_leaderboard

TUNED = Path("data/tune")
OUT = Path("data/models")


@exits_cleanly
def main() -> int:
    """Write data/models."""
    cfg = config.load()
    for app, validation in validations(Path(), cfg.tune.folds, cfg.tune.seed).items():
        leaderboard = load_leaderboard(TUNED / app, validation.table["cell_key"].tolist())
        for name, forecaster in fit_forecasters(
            validation, leaderboard, list(leaderboard.params), cfg.evaluation.uncalibrated_factor
        ):
            forecaster.save(OUT / app / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
