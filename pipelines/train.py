"""Stage train: fit and calibrate every family of each application on all its training runs."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.files import sha256_file
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.models.selection.refitting import fit_forecasters
from voxcast.models.selection.validations import TRAIN, validations
from voxcast.tracking import runs
from voxcast.tracking.finals import final_run

TUNED = Path("data/tune")
OUT = Path("data/models")


@exits_cleanly
def main() -> int:
    """Write data/models and log the final run of every family and ensemble."""
    cfg = config.load()
    session = runs.connect(Path())
    table_sha256 = sha256_file(TRAIN)
    for app, validation in validations(Path(), cfg.tune.folds, cfg.tune.seed).items():
        table = validation.table
        leaderboard = load_leaderboard(TUNED / app, table["cell_key"].tolist())
        for name, forecaster in fit_forecasters(
            validation, leaderboard, list(leaderboard.params), cfg.evaluation.uncalibrated_factor
        ):
            forecaster.save(OUT / app / name)
            params, metrics = leaderboard.params[name], leaderboard.metrics["volume"][name]
            run_id = final_run(session, app, name, OUT / app / name, table_sha256, params, metrics)
            runs.log_dataset(run_id, table, TRAIN, table_sha256, "training")
    return 0


if __name__ == "__main__":
    sys.exit(main())
