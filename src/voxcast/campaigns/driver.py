"""The driver of a campaign: measures cells one after the other and records each once.

The stage, the command line and the machine with a GPU all use it. Only what
`voxcast.campaigns.recorder` has renamed into place counts as recorded, so there is never half a
record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.app import choose
from voxcast.apps.checks import check_startable
from voxcast.campaigns.cell_queue import CellQueue
from voxcast.campaigns.driver_lock import driver_lock
from voxcast.campaigns.failures import Failures
from voxcast.campaigns.recorder import Recorder
from voxcast.campaigns.sittings import open_sitting
from voxcast.campaigns.unmeasured import missing_cells, tried_again
from voxcast.errors import RunError
from voxcast.files import PARTIAL
from voxcast.history.run_folders import record_rows
from voxcast.profiling.leftovers import sweep_abandoned
from voxcast.profiling.metronome import Metronome
from voxcast.profiling.runner import sweep
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from voxcast.campaigns.plan import CampaignPlan
    from voxcast.campaigns.settings import CampaignSettings
    from voxcast.profiling.probes import Probes
    from voxcast.records import App, Cell, Profile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Result of a sitting: the folders of its runs, and how many cells are left."""

    runs: list[Path]
    left: int
    left_s: float


def run_campaign(
    settings: CampaignSettings,
    plan: CampaignPlan,
    *,
    recorded: Mapping[str, Mapping[str, Any]] | None = None,
    probes: Probes | None = None,
    on_record: Callable[[Path], None] | None = None,
) -> Progress:
    """Measure the cells of ``plan`` that have no record yet, and repeat those that were noisy.

    Failed runs of the folder are tried once more, after all others, see `tried_again`.

    Each anchor is run once unrecorded before it is measured, as the first run of an application
    reads its libraries from disk.

    Parameters
    ----------
    recorded : mapping, optional
        Rows of the history by key that count as recorded, though they are not in the run folder.
    probes : Probes, optional
        Speeds of the machine, if known; measured otherwise.
    on_record : callable, optional
        Called with the folder of each run after it was recorded, one at a time.

    Raises
    ------
    RunError
        If a volume or a container is missing, another campaign writes to the folder, the disk is
        full, or an application fails on image after image and no run of it ever completed.
    """
    start = time.monotonic()
    folder = settings.runs
    folder.mkdir(parents=True, exist_ok=True)
    sweep_abandoned()
    with driver_lock(folder):
        for partial in folder.glob(PARTIAL + "*"):
            sweep(partial) if partial.is_dir() else partial.unlink()
        elsewhere, here = recorded or {}, record_rows(folder)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), here, settings.conditions.time_limit_s
        )
        rows = {**elsewhere, **here}
        repeat_noisy_s = settings.repeat_noisy_s
        missing = missing_cells(
            plan.cells, rows, again, noisy=repeat_noisy_s is None or repeat_noisy_s > 0
        )
        _check_runnable(missing, plan.paths, settings.apps)
        if count := len((plan.cells.keys() & rows.keys()) - again):
            logger.info("%d of %d runs are on record", count, len(plan.cells))
        if again:
            logger.info("%d runs that failed or were stopped are tried once more", len(again))
        if not missing:
            return Progress([], 0, 0.0)
        sittings = {str(row["sitting"]) for row in rows.values()}
        sitting = open_sitting(folder, sittings, probes, settings.host)
        anchors = [
            dataclasses.replace(cell, repeat=cell.repeat + sitting.number) for cell in plan.anchors
        ]
        missing = {**{cell.key: cell for cell in anchors}, **missing}
        times = _times_of(missing, plan.expected_s)
        deadline = None if settings.stop_after_s is None else start + settings.stop_after_s
        anchors_s = 2 * sum(times[cell.key] for cell in anchors)
        if deadline is not None and anchors_s and time.monotonic() + anchors_s > deadline:
            took = format_seconds(anchors_s)
            logger.warning("the time is too short: a sitting starts with anchor runs of %s", took)
            return Progress([], len(missing) - len(anchors), sum(times.values()))
        recorder = Recorder(
            folder, settings.apps, plan.paths, plan.recipes, settings.conditions, sitting
        )
        with CellQueue(
            missing,
            times,
            deadline=deadline,
            repeat_until=None if repeat_noisy_s is None else start + repeat_noisy_s,
        ) as queue:
            for cell in anchors:
                recorder.warm_up(cell)
            stop_at = deadline if settings.stop_running else None
            failures = Failures(here.values())
            _Sitting(queue, recorder, stop_at, on_record, failures).run(settings.parallel)
            if repeat_noisy_s is not None:  # a repeat that its time did not suffice for is not due
                queue.drop_repeats()
            return Progress(queue.recorded, queue.left(), queue.left_s())


def _check_runnable(
    cells: Mapping[str, Cell], paths: Mapping[str, Path], apps: Mapping[str, App]
) -> None:
    """Check volumes, programs and containers before any run is started."""
    for cell in cells.values():
        if cell.volume_id and not paths[cell.volume_id].is_file():
            then = "the images have changed: run `dvc repro catalogue`"
            raise RunError("no such volume", paths[cell.volume_id], then)
    for name, configuration in {(c.app, c.configuration): None for c in cells.values()}:
        check_startable(choose(apps, name), configuration)


def _times_of(cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> dict[str, float]:
    """Return the expected seconds of each cell; a repeat takes as long as the original."""
    times = {}
    for key, cell in cells.items():
        origin = cell.repeat % NOISY_REPEAT if cell.repeat < ANCHOR_REPEAT else ANCHOR_REPEAT
        first = dataclasses.replace(cell, repeat=origin).key
        times[key] = expected_s.get(key, expected_s.get(first, 1.0))
    return times


@dataclass
class _Sitting:
    """Takes cells from the queue until none is left, on one or several sets of cores."""

    queue: CellQueue
    recorder: Recorder
    stop_at: float | None
    on_record: Callable[[Path], None] | None
    failures: Failures

    def run(self, parallel: int) -> None:
        """Measure on ``parallel`` sets of cores, then one by one cells that need more."""
        sets = core_sets(sorted(os.sched_getaffinity(0)), parallel)
        if len(sets) > 1:
            with ThreadPoolExecutor(len(sets)) as pool:
                try:
                    workers = [pool.submit(self._work, cores, len(cores)) for cores in sets]
                    for worker in wait(workers, return_when=FIRST_EXCEPTION).done:
                        worker.result()
                except BaseException:
                    self.queue.close()
                    self.recorder.stop()
                    raise
        self._work(None, None)

    def _work(self, core_set: Sequence[int] | None, max_cpus: int | None) -> None:
        # One for each thread that measures: the metronome ends with it, as the runs do.
        with Metronome(enabled=self.recorder.conditions.metronome) as metronome:
            while (cell_with_key := self.queue.take(max_cpus)) is not None:
                key, cell = cell_with_key
                start = time.monotonic()
                profile = self.recorder.record(cell, key, core_set, self.stop_at, metronome)
                if profile is None:
                    self.queue.put_back(key, cell)
                    return
                self._account(cell, key, profile, time.monotonic() - start)

    def _account(self, cell: Cell, key: str, profile: Profile, took_s: float) -> None:
        run = self.recorder.folder / key
        # A run that did not complete has no time to be measured better.
        disturbed = profile.noisy and profile.outcome == "completed"
        with self.queue.finished(key, cell, took_s, disturbed, run):
            if self.on_record is not None:
                self.on_record(run)
            self.failures.count(cell, profile.outcome)
        self.failures.check(cell, run)


def core_sets(cores: Sequence[int], parallel: int) -> list[list[int]]:
    """Return ``parallel`` disjoint sets of equally many cores.

    Raises
    ------
    RunError
        If there are fewer cores than sets, or ``parallel`` is below 1.

    Examples
    --------
    >>> core_sets([0, 1, 2, 3, 4], 2)
    [[0, 1], [2, 3]]
    """
    if not 1 <= parallel <= len(cores):
        raise RunError(
            f"cannot make {parallel} runs at a time, there are {len(cores)} cores here",
            "parallel",
            f"set it to 1 to {len(cores)}",
        )
    size = len(cores) // parallel
    return [list(cores[n * size : (n + 1) * size]) for n in range(parallel)]
