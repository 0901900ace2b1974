"""Running cells on this machine: missing cells, their queue, the time left, the progress shown.

Only what `voxcast.measure.record` has renamed into place counts as recorded, so there is never
half a record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from voxcast.apps.app import choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError
from voxcast.files import PARTIAL, process_lock
from voxcast.measure.leftovers import sweep, sweep_abandoned
from voxcast.measure.metronome import Metronome
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.record import Failures, Recorder, open_sitting
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, Cell, Run
from voxcast.runs.series import runs_in

LOCK_PATIENCE_S = 3.0  # a driver that was just killed may hold its lock a little longer
# Weight of the first expectation, in seconds: one unusual run does not dominate.
PRIOR_S = 10.0
EVERY_S = 30.0  # between two lines of progress

Work = Callable[[Cell, Sequence[int] | None, Metronome], Run | None]
Kind = tuple[str, str, str, int]

logger = logging.getLogger(__name__)


class TimeLeft:
    """Expected seconds of the cells that are left, corrected by the runs that are done.

    Parameters
    ----------
    cells : mapping
        The cells to measure, by key.
    expected_s : mapping
        Expected seconds by application and volume, before anything is measured; 1 if not known.
    """

    def __init__(
        self, cells: Mapping[str, Cell], expected_s: Mapping[tuple[str, str], float]
    ) -> None:
        self.left = dict(cells)
        self._expected_s = expected_s
        self._done_s: dict[Kind, float] = defaultdict(float)
        self._took_s: dict[Kind, float] = defaultdict(float)

    def finish(self, key: str, took_s: float) -> None:
        """Count a cell that took ``took_s`` seconds in all."""
        cell = self.left.pop(key)
        self._done_s[kind_of(cell)] += self._first_s(cell)
        self._took_s[kind_of(cell)] += took_s

    def cell_s(self, cell: Cell) -> float:
        """Return the seconds that one cell is now expected to take."""
        # Before a run of its kind is measured all runs count.
        kinds = [kind_of(cell)] if kind_of(cell) in self._took_s else [*self._took_s]
        took_s = PRIOR_S + sum(self._took_s[kind] for kind in kinds)
        done_s = PRIOR_S + sum(self._done_s[kind] for kind in kinds)
        return self._first_s(cell) * took_s / done_s

    def total_s(self) -> float:
        """Return the seconds that all cells left are now expected to take, one after the other."""
        return sum(map(self.cell_s, self.left.values()))

    def _first_s(self, cell: Cell) -> float:
        return self._expected_s.get((cell.app, cell.volume_id), 1.0)


def kind_of(cell: Cell) -> Kind:
    """Return the facts by which runs are expected to take similarly long for their size."""
    return cell.app, cell.scale, cell.configuration.device, cell.configuration.cpus


def is_to_repeat(cell: Cell, run: Run) -> bool:
    """Return whether ``run`` of ``cell`` is to be measured once more, undisturbed."""
    # A run that did not complete has no time to be measured better.
    return run.noisy and run.outcome == "completed" and cell.repeat < NOISY_REPEAT


def is_noisy_repeat(cell: Cell) -> bool:
    """Return whether a cell repeats a noisy run."""
    return NOISY_REPEAT <= cell.repeat < ANCHOR_REPEAT


def repeat_of(cell: Cell) -> Cell:
    """Return the cell that repeats a noisy run of ``cell``."""
    return dataclasses.replace(cell, repeat=cell.repeat + NOISY_REPEAT)


class LocalRunner:
    """Runs cells in their order, one at a time or several on separate sets of cores.

    Parameters
    ----------
    times : TimeLeft
        The cells to run, and their expected times; what was not run stays in ``left``.
    work : callable
        Runs a cell on some cores (None: all of ours) with the metronome of the thread; returns
        its run, or None if it was stopped unrecorded, which ends the thread.
    deadline, repeat_until : float
        Times of the monotonic clock. After the deadline no run is started, nor any that would not
        end by then; after `repeat_until` noisy runs are not repeated any more.
    on_end : callable, optional
        Called with each cell and its run, one at a time.
    metronome : bool
        Whether kernels are timed beside each run.

    Attributes
    ----------
    ended : list of str
        Keys of the cells that were run, in their order.
    stopping : Event
        Set when a run raises an error: then the runs of other threads are to end.
    """

    def __init__(
        self,
        times: TimeLeft,
        work: Work,
        *,
        deadline: float = math.inf,
        repeat_until: float = math.inf,
        on_end: Callable[[Cell, Run], None] | None = None,
        metronome: bool = True,
    ) -> None:
        self.ended: list[str] = []
        self.stopping = threading.Event()
        self._times, self._work, self._on_end = times, work, on_end
        self._deadline, self._repeat_until = deadline, repeat_until
        self._metronome = metronome
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._said = -math.inf

    def run(self, core_sets: Sequence[Sequence[int]] = ()) -> None:
        """Run the cells on each of several core sets, then those too large for one, one by one."""
        if len(core_sets) > 1:
            with ThreadPoolExecutor(len(core_sets)) as pool:
                try:
                    threads = [pool.submit(self._run_on, cores) for cores in core_sets]
                    for thread in wait(threads, return_when=FIRST_EXCEPTION).done:
                        thread.result()
                except BaseException:
                    self.stopping.set()
                    raise
        self._run_on(None)

    def _run_on(self, cores: Sequence[int] | None) -> None:
        # One metronome for each thread that measures: it ends with the thread, like the runs.
        with Metronome(enabled=self._metronome) as metronome:
            while (taken := self._take(cores)) is not None:
                start, (key, cell) = time.monotonic(), taken
                run = self._work(cell, cores, metronome)
                with self._lock:
                    self._running.discard(key)
                    if run is None:
                        return
                    self.ended.append(key)
                    self._times.finish(key, time.monotonic() - start)
                    if time.monotonic() < self._repeat_until and is_to_repeat(cell, run):
                        self._times.left[repeat_of(cell).key] = repeat_of(cell)
                    if self._on_end is not None:
                        self._on_end(cell, run)

    def _take(self, cores: Sequence[int] | None) -> tuple[str, Cell] | None:
        """Return the next cell that ends by the deadline, and fits beside others on ``cores``."""
        with self._lock:
            now = time.monotonic()
            for key, cell in self._times.left.items():
                needs = cell.configuration
                fits = cores is None or (needs.cpus <= len(cores) and not needs.gpus)
                is_free = key not in self._running and not self.stopping.is_set()
                is_late = now >= self._repeat_until and is_noisy_repeat(cell)
                ends = now + self._times.cell_s(cell) <= self._deadline
                if fits and is_free and ends and not is_late:
                    self._running.add(key)
                    self._say(cell)
                    return key, cell
            return None

    def _say(self, cell: Cell) -> None:
        """Log the time left and the cell that starts, if enough time has passed."""
        if time.monotonic() - self._said >= EVERY_S:
            self._said = time.monotonic()
            number, count = len(self.ended) + 1, len(self.ended) + len(self._times.left)
            left = format_seconds(self._times.total_s())
            logger.info("left %s, run %d of %d: %s", left, number, count, cell.label)


@dataclass(frozen=True)
class Progress:
    """Result of a sitting: its runs' folders; how many cells are left, and their seconds."""

    runs: list[Path]
    left: int
    left_s: float


def run_campaign(
    settings: CampaignSettings,
    plan: CampaignPlan,
    *,
    recorded: Mapping[str, Run] | None = None,
    on_record: Callable[[Path], None] | None = None,
) -> Progress:
    """Measure the cells of ``plan`` that have no record yet, and repeat noisy runs.

    Failed runs of the folder are tried once more, after all others, see
    `tried_again`. Each local run is made once unrecorded before it is
    measured, as the first run of an application reads its libraries from disk.

    Parameters
    ----------
    recorded : mapping, optional
        Runs by key that count as recorded, though they are not in the run folder.
    on_record : callable, optional
        Called with the folder of each run after it was recorded, one at a time.

    Raises
    ------
    RunError
        If a volume or a container is missing, another campaign writes to the folder, the disk is
        full, or an application fails on image after image and no run of it ever completed.
    """
    start, folder = time.monotonic(), settings.runs
    folder.mkdir(parents=True, exist_ok=True)
    sweep_abandoned()
    with process_lock(lock_file(folder), "another campaign", folder, LOCK_PATIENCE_S):
        for partial in folder.glob(PARTIAL + "*"):
            sweep(partial) if partial.is_dir() else partial.unlink()
        elsewhere, here = recorded or {}, runs_in(folder)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), here, settings.conditions.time_limit_s
        )
        runs = {**elsewhere, **here}
        repeat_noisy_s = math.inf if settings.repeat_noisy_s is None else settings.repeat_noisy_s
        missing = missing_cells(plan.cells, runs, again, noisy=repeat_noisy_s > 0)
        for cell in missing.values():  # before any run is started
            if cell.volume_id and not plan.paths[cell.volume_id].is_file():
                then = "the images have changed: run `dvc repro catalogue`"
                raise RunError("no such volume", plan.paths[cell.volume_id], then)
        for name, configuration in dict.fromkeys(
            (c.app, c.configuration) for c in missing.values()
        ):
            check_startable(choose(settings.apps, name), configuration)
        if count := len((plan.cells.keys() & runs.keys()) - again):
            logger.info("%d of %d runs are on record", count, len(plan.cells))
        if again:
            logger.info("%d runs that failed or were stopped are tried once more", len(again))
        if not missing:
            return Progress([], 0, 0.0)
        earlier = {run.sitting for run in runs.values()}
        sitting = open_sitting(earlier, settings.host)
        local_runs = [
            dataclasses.replace(cell, repeat=cell.repeat + sitting.number)
            for cell in plan.local_runs
        ]
        times = TimeLeft({**{cell.key: cell for cell in local_runs}, **missing}, plan.expected_s)
        deadline = start + (math.inf if settings.stop_after_s is None else settings.stop_after_s)
        first_s = 2 * sum(map(times.cell_s, local_runs))
        if first_s and time.monotonic() + first_s > deadline:
            took = format_seconds(first_s)
            logger.warning("the time is too short: a sitting starts with local runs of %s", took)
            return Progress([], len(missing), times.total_s())
        failures = Failures(here.values())
        stop_at = deadline if settings.stop_running and deadline < math.inf else None

        def on_end(cell: Cell, run: Run) -> None:
            if on_record is not None:
                on_record(folder / run.cell_key)
            failures.count(cell, run.outcome, folder / run.cell_key)

        runner = LocalRunner(
            times,
            lambda cell, cores, metronome: recorder.record(cell, cores, stop_at, metronome),
            deadline=deadline,
            repeat_until=start + repeat_noisy_s,
            on_end=on_end,
            metronome=settings.conditions.metronome,
        )
        recorder = Recorder(
            folder, settings.apps, plan.paths, plan.recipes, settings.conditions, sitting,
            runner.stopping.is_set,
        )  # fmt: skip
        for cell in local_runs:
            recorder.warm_up(cell)
        runner.run(core_sets(sorted(os.sched_getaffinity(0)), settings.parallel))
        left = times.left
        if repeat_noisy_s < math.inf:  # a repeat for which the time did not suffice is not due
            left = {key: cell for key, cell in left.items() if not is_noisy_repeat(cell)}
        left_s = sum(map(times.cell_s, left.values()))
        return Progress([folder / key for key in runner.ended], len(left), left_s)


def core_sets(cores: Sequence[int], parallel: int) -> list[list[int]]:
    """Return ``parallel`` disjoint sets of equally many cores, or as many as there are cores.

    Examples
    --------
    >>> core_sets([0, 1, 2, 3, 4], 2)
    [[0, 1], [2, 3]]
    """
    size = max(1, len(cores) // parallel)
    return [list(cores[n : n + size]) for n in range(0, len(cores), size)][:parallel]


def tried_again(
    keys: Iterable[str], runs: Mapping[str, Run], time_limit_s: float | None
) -> set[str]:
    """Return which of ``keys`` have a record that is worth another try.

    These are failed runs, and runs stopped at a shorter time than the limit is now: the user has
    started the campaign again and may have mended the cause. ``time_limit_s`` is the present limit
    of a run; None without one.
    """
    limit_s = math.inf if time_limit_s is None else time_limit_s
    return {
        key
        for key in set(keys) & runs.keys()
        if runs[key].outcome == "failed"
        or (runs[key].outcome == "timeout" and (runs[key].limit_s or math.inf) < limit_s)
    }


def missing_cells(
    cells: Mapping[str, Cell],
    runs: Mapping[str, Run],
    again: Collection[str] = (),
    *,
    noisy: bool = True,
) -> dict[str, Cell]:
    """Return the cells without a record, then those tried again, then repeats of noisy runs.

    ``runs`` are on record by key; the keys in ``again`` count as missing. With ``noisy=False``
    nothing is repeated.
    """
    missing = {key: cell for key, cell in cells.items() if key not in runs}
    missing |= {key: cell for key, cell in cells.items() if key in again and key in runs}
    for key, cell in cells.items() if noisy else ():
        repeated = repeat_of(cell)
        if key not in missing and is_to_repeat(cell, runs[key]) and repeated.key not in runs:
            missing[repeated.key] = repeated
    return missing


def is_locked(folder: Path) -> bool:
    """Return whether a driver works in ``folder``; nothing is created."""
    try:
        with lock_file(folder).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no lock was ever taken here
    return False


def lock_file(folder: Path) -> Path:
    """Return the file that the driver of the runs in ``folder`` locks."""
    return folder.parent / f".{folder.name}.lock"
