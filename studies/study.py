"""A study of the recorded history: models learn from some runs and are scored on others.

Its results are written to results/studies.

Applications are studied side by side, one process for each core. Predictions of inner folds are
cached in ``build/folds``, which all studies share: a study that was stopped goes on there.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

import ablation
import second_batch
import splits
import transfer
from voxcast import config
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.evaluation import replayed_requests
from voxcast.evaluation.recorded_table import (
    recorded_table,
    reserved_table,
)
from voxcast.features.rows import side
from voxcast.files import write_json
from voxcast.images.catalogue import RECORDED_IMAGES
from voxcast.images.network_volume import SMALL_VOLUMES, read_stacked
from voxcast.models.selection.cross_validation import FoldCache
from voxcast.records import App
from voxcast.runs.store import batch_names, load_history, load_phases, reserved_names

HISTORY = Path("data/history")
# The batches that a study judges on.
TEST_BATCHES = {
    "second_batch": "second", "real": "real", "heads": "heads", "parcels": "parcel_study"
}  # fmt: skip
APPS = Path("conf/app")
FOLDS = Path("build/folds")
OUT = Path("results/studies")
CODE = ("src", "studies", "conf")
T = TypeVar("T")
R = TypeVar("R")
STUDIES = (
    "splits", "transfer", "second_batch", "real", "heads", "parcels", "ablation", "per_image",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class AppRuns:
    """The runs of one application: to learn from, to judge on, and small volumes of the former."""

    app: str
    table: pd.DataFrame
    judging: pd.DataFrame | None = None
    volumes: np.ndarray | None = None


@exits_cleanly
def main() -> int:
    """Write ``results/studies/NAME.json``."""
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in STUDIES:
        raise ConfigError(
            f"unknown study {name!r}", "study.py", f"choose from {', '.join(STUDIES)}"
        )
    table = table_to_learn_from()
    judging = _reserved(name)
    batches = [HISTORY / batch for batch in sorted(table["batch"].unique())]
    volumes = network_volumes(table, batches) if name == "ablation" else None
    apps = table if judging is None else judging
    jobs = [
        AppRuns(
            app,
            table[table["app"] == app],
            None if judging is None else judging[judging["app"] == app],
            None if volumes is None else volumes[(table["app"] == app).to_numpy()],
        )
        for app in sorted(apps["app"].unique())
        if name != "transfer" or app == transfer.APP
    ]
    results: dict[str, Any] = {}
    for by_app in side_by_side(partial(_results, name), jobs):
        results |= by_app
    write_json(OUT / f"{name}.json", results)
    return 0


def table_to_learn_from() -> pd.DataFrame:
    """Return the runs of all batches that are not reserved, without the test side's subjects."""
    evaluation = config.load().evaluation

    def is_sealed(subject: str) -> bool:
        return side(subject, evaluation.split_seed, evaluation.test_fraction) == "test"

    batches = _batches_to_learn_from()
    apps = apps_of(batches)
    return recorded_table(
        batches,
        is_sealed,
        {app.name: app.characteristics for app in apps},
        {app.name: app.phase_drivers for app in apps},
    )


def _batches_to_learn_from() -> list[Path]:
    reserved = reserved_names(HISTORY)
    batches = [HISTORY / name for name in batch_names(HISTORY) if name not in reserved]
    return [batch for batch in batches if (batch / RECORDED_IMAGES).is_file()]


def apps_of(batches: Sequence[Path]) -> list[App]:
    """Return the applications of some batches, as they are described in ``conf/app``."""
    names = sorted(load_history(batches)["app"].unique()) if batches else []
    return [config.load_app(APPS, name) for name in names]


def _reserved(name: str) -> pd.DataFrame | None:
    """Return the runs of the reserved batch that a study judges on."""
    if name not in TEST_BATCHES:
        return None
    batch = HISTORY / TEST_BATCHES[name]
    declared = {app.name: app.characteristics for app in apps_of([batch])}
    return reserved_table(batch, declared)


def network_volumes(table: pd.DataFrame, batches: Sequence[Path]) -> np.ndarray:
    """Return the small volume of each run as recorded in several batches, shape (n_runs,).

    The volume of a run without an image is unknown, all zeros.

    Raises
    ------
    TableError
        If a batch has no small volumes on record, or they cannot be read.
    """
    by_id: dict[str, np.ndarray] = {}
    for batch in batches:
        ids, volumes = read_stacked(batch / SMALL_VOLUMES, "restore it from the repository")
        by_id |= dict(zip(ids, volumes, strict=True))
    unknown = np.zeros_like(volumes[0])
    return np.array([by_id.get(name, unknown) for name in table["volume_id"]], volumes.dtype)


def seconds_in_phase(batches: Sequence[Path | str], phase: str) -> pd.Series:
    """Return the total wall seconds that each run spent in a phase, by cell key."""
    phases = load_phases([Path(batch) for batch in batches])
    phases = phases[phases["phase"] == phase]
    seconds: pd.Series = (phases["end_s"] - phases["start_s"]).groupby(phases["cell_key"]).sum()
    return seconds


def side_by_side(study: Callable[[T], R], jobs: Sequence[T]) -> list[R]:
    """Return the result of each application, studied in a process of its own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    # Processes that are forked from one with threads of numerical libraries may hang.
    with ProcessPoolExecutor(workers, get_context("spawn")) as executor:
        return list(executor.map(study, jobs))


def _results(name: str, runs: AppRuns) -> dict[str, Any]:
    """Return the results of a study for one application."""
    shared: dict[str, Any] = {
        "cache": FoldCache(FOLDS),
        "on_step": lambda step: print(f"{name}: {step}", file=sys.stderr, flush=True),
    }
    if runs.judging is not None and name == "parcels":  # only this batch has runs of it
        return splits.study(runs.judging, **shared)
    if runs.judging is not None:
        return second_batch.study(runs.table, runs.judging, **shared)
    if name == "splits":
        epochs_s = seconds_in_phase(_batches_to_learn_from(), "epoch")
        return splits.study(runs.table, epochs_s=epochs_s, **shared)
    if name == "ablation":
        return ablation.study(runs.table, runs.volumes, **shared)
    if name == "transfer":
        return transfer.study(runs.table, on_step=shared["on_step"])
    return replayed_requests.study(runs.table, **shared)


if __name__ == "__main__":
    sys.exit(main())
