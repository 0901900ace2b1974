"""Judge the registered model, as it is, on batches that are reserved for judging.

``python studies/judge.py second real`` writes ``results/judged/BATCH.json``. Each call is an
opening of these batches and adds a line to the book of openings.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from frozen_champion import judge
from voxcast.commits import commit_of
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.evaluation.recorded_table import opened_table
from voxcast.files import write_json
from voxcast.images.network_volume import SMALL_VOLUMES, read_small_volumes
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.models import openings
from voxcast.runs.store import batch_names, reserved_names
from voxcast.serving.prediction_service import PredictionService

HISTORY = Path("data/history")
OUT = Path("results/judged")
CODE = ("src", "studies", "conf")


@exits_cleanly
def main() -> int:
    """Write ``results/judged/BATCH.json`` for each batch that is named."""
    reserved = sorted(reserved_names(HISTORY) & {*batch_names(HISTORY)})
    batches = sys.argv[1:]
    for name in batches or [""]:
        if name not in reserved:
            choices = ", ".join(reserved) or f"none of {HISTORY}/reserved.txt is recorded"
            problem = f"no batch that is reserved for judging: {name!r}"
            raise ConfigError(problem, "judge.py", f"choose from {choices}")
    model = PredictionService.of_project(Path())  # it is there before anything is opened
    for name in batches:
        _judge(model, HISTORY / name)
    return 0


def _judge(model: PredictionService, batch: Path) -> None:
    version = model.bundle.version
    by = f"judge version {version} of the registered model"
    runs = opened_table(batch, openings.BOOK, by, commit_of(Path(), CODE))
    small_volumes = read_small_volumes(batch / SMALL_VOLUMES, "restore it from the repository")
    by_app = judge(model, runs, pd.read_parquet(batch / RECORDED_IMAGES), small_volumes)
    counts = openings.counts(openings.openings_of(Path()), runs)
    path = OUT / f"{batch.name}.json"
    content = {"batch": batch.name, "version": version, "apps": by_app}
    write_json(path, {**content, "openings": asdict(counts)})
    print(f"{path}: version {version}, opened {counts.any_subject} times until now")


if __name__ == "__main__":
    sys.exit(main())
