"""Stage train: fit and calibrate every family of each application on all its training runs."""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.by_app import tables_by_app
from voxcast.features.table import censored_of, volumes_of
from voxcast.files import sha256_file
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard_files import load_leaderboard
from voxcast.models.selection.refitting import fit_forecasters
from voxcast.tracking import runs
from voxcast.tracking.finals import final_run

TRAIN = Path("data/features/train.parquet")
CENSORED = Path("data/features/censored.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
FOLDS = Path("build/folds")  # fits of tuning
TUNED = Path("data/tune")
OUT = Path("data/models")


@exits_cleanly
def main() -> int:
    """Write data/models and log the final run of every family and ensemble."""
    cfg = config.load()
    session = runs.connect(Path())
    table_sha256, censored = sha256_file(TRAIN), censored_of(CENSORED)
    for app, table in tables_by_app(pd.read_parquet(TRAIN)).items():
        validation = Validation(
            table,
            volumes_of(table, VOLUMES),
            cfg.tune.folds,
            cfg.tune.seed,
            cache=FoldCache(FOLDS),
            censored=censored,
        )
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
