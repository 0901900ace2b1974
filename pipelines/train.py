"""Stage train: every family with its best parameters on the whole training side, calibrated."""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import censored_of, volumes_of
from voxcast.files import sha256_file
from voxcast.models.extrapolation import fit_extrapolator
from voxcast.models.forecaster import CalibratedModel, Forecaster, calibrate
from voxcast.models.point_model import INPUT_LEVELS, InputLevel, PointModel
from voxcast.models.selection import recipes
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fold_cache import FoldCache
from voxcast.models.selection.leaderboard import Leaderboard
from voxcast.tracking import runs
from voxcast.tracking.finals import final_run

TRAIN = Path("data/features/train.parquet")
CENSORED = Path("data/features/censored.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
FOLDS = Path("build/folds")  # fits of tuning
OUT = Path("data/models")


@exits_cleanly
def main() -> int:
    """Write data/models and log the final run of every family."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    volumes = volumes_of(table, VOLUMES)
    censored = censored_of(CENSORED)
    board = Leaderboard.load(Path("data/tune"))
    session = runs.connect(Path())
    table_sha256 = sha256_file(TRAIN)

    factor = cfg.evaluation.uncalibrated_factor
    fitted: dict[InputLevel, dict[str, PointModel]] = {"header": {}, "volume": {}}

    def alone(name: str, input_level: InputLevel) -> CalibratedModel:
        params = board.params(name)
        model = fitted[input_level].get(name) or recipes.fit(
            table, volumes, name, params, input_level, cfg.tune.seed, fitted=fitted[input_level]
        )
        if isinstance(model, PointModel):
            fitted[input_level][name] = model
        return calibrate(model, table, board.logs(table, name, input_level), factor, censored)

    known = Validation(
        table, volumes, cfg.tune.folds, cfg.tune.seed, cache=FoldCache(FOLDS), censored=censored
    )
    extrapolators = {
        input_level: fit_extrapolator(known, board.tuned, factor, input_level)
        for input_level in INPUT_LEVELS
    }

    def calibrated(name: str, input_level: InputLevel) -> CalibratedModel:
        return replace(alone(name, input_level), extrapolator=extrapolators[input_level])

    header = calibrated(board.header_family, "header")
    for name, found in board.families.items():
        forecaster = Forecaster({"header": header, "volume": calibrated(name, "volume")})
        forecaster.save(OUT / name)
        run_id = final_run(session, name, OUT / name, table_sha256, found)
        runs.log_dataset(run_id, table, TRAIN, table_sha256, "training")
    return 0


if __name__ == "__main__":
    sys.exit(main())
