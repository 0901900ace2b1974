"""Stage train: every family with its best parameters on the whole training side, calibrated."""

import sys
from pathlib import Path

import pandas as pd

from voxcast import config
from voxcast.errors import exits_cleanly
from voxcast.features.table import volumes_of
from voxcast.files import sha256_file
from voxcast.models import point_model
from voxcast.models.forecaster import Forecaster, Tier, calibrate
from voxcast.models.leaderboard import Leaderboard
from voxcast.models.point_model import Level
from voxcast.tracking import runs
from voxcast.tracking.finals import final_run

TRAIN = Path("data/features/train.parquet")
VOLUMES = Path("data/catalogue/volumes.npz")
OUT = Path("data/models")


@exits_cleanly
def main() -> int:
    """Write data/models and log the final run of every family."""
    cfg = config.load()
    table = pd.read_parquet(TRAIN)
    volumes = volumes_of(table, VOLUMES)
    board = Leaderboard.load(Path("data/tune"))
    session = runs.connect(Path())
    table_sha256 = sha256_file(TRAIN)

    def tier(name: str, level: Level) -> Tier:
        params = board.params(name)
        model = point_model.fit(table, volumes, name, params, level, cfg.tune.seed)
        factor = cfg.evaluation.uncalibrated_factor
        return calibrate(model, table, board.logs(table, name, level), factor)

    header = tier(board.header_family, "header")
    for name, found in board.families.items():
        forecaster = Forecaster({"header": header, "volume": tier(name, "volume")})
        forecaster.save(OUT / name)
        run_id = final_run(session, name, OUT / name, table_sha256, found)
        runs.log_dataset(run_id, table, TRAIN, table_sha256, "training")
    return 0


if __name__ == "__main__":
    sys.exit(main())
