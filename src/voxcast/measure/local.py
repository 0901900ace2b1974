"""Running cells on this machine: missing cells, their queue, the time left, the progress shown.

Only what `voxcast.measure.record` has renamed into place counts as recorded, so there is never
half a record, and the same command continues with the cells that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.apps.app import choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError
from voxcast.files import PARTIAL, HeldError, process_lock
from voxcast.measure.host import Probes
from voxcast.measure.leftovers import sweep, sweep_abandoned
from voxcast.measure.metronome import Metronome
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.record import Failures, Recorder, open_sitting
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, App, Cell, Run
from voxcast.runs.series import runs_in

LOCK_PATIENCE_S = 3.0  # a driver that was just killed may hold its lock a little longer
# Weight of the first expectation, in seconds: one unusual run does not dominate.
PRIOR_S = 10.0
EVERY_S = 60.0  # between two lines of progress without a terminal
FORMAT = "{percentage:3.0f}%|{bar:20}| {elapsed}, left {desc}"

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
        Expected seconds by key, before anything is measured; 1 where it is not known.
    """

    def __init__(self, cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> None:
        self.left = dict(cells)
        self.first_s = {key: expected_s.get(key, 1.0) for key in cells}
        self._done_s: dict[Kind, float] = defaultdict(float)
        self._took_s: dict[Kind, float] = defaultdict(float)

    def finish(self, key: str, took_s: float) -> None:
        """Count a cell that took ``took_s`` seconds in all."""
        kind = kind_of(self.left.pop(key))
        self._done_s[kind] += self.first_s[key]
        self._took_s[kind] += took_s

    def cell_s(self, key: str, cell: Cell) -> float:
        """Return the seconds that one cell is now expected to take."""
        kind = kind_of(cell)
        # Before a run of its kind is measured all runs count.
        kinds = [kind] if kind in self._took_s else [*self._took_s]
        took_s = PRIOR_S + sum(self._took_s[kind] for kind in kinds)
        return self.first_s[key] * took_s / (PRIOR_S + sum(self._done_s[kind] for kind in kinds))

    def total_s(self) -> float:
        """Return the seconds that all cells left are now expected to take, one after the other."""
        return sum(self.cell_s(key, cell) for key, cell in self.left.items())


def kind_of(cell: Cell) -> Kind:
    """Return the facts by which runs are expected to take similarly long for their size."""
    return cell.app, cell.scale, cell.configuration.device, cell.configuration.cpus


def repeat_of(cell: Cell) -> Cell:
    """Return the cell that repeats a noisy run of ``cell``."""
    return dataclasses.replace(cell, repeat=cell.repeat + NOISY_REPEAT)


class ProgressBar:
    """Progress in expected seconds: a bar on a terminal, elsewhere log messages now and then.

    Parameters
    ----------
    total_s : float
        Expected seconds of all runs.
    every_s : float
        Least time between two messages. The first run is always announced.
    """

    def __init__(self, total_s: float, every_s: float = EVERY_S) -> None:
        self._bar: Any = None
        self._every_s, self._last_s = every_s, -math.inf
        try:
            from tqdm import tqdm
        except ModuleNotFoundError:  # on a borrowed machine with a GPU
            return
        self._bar = tqdm(total=total_s, disable=None, bar_format=FORMAT)

    def describe(self, text: str) -> None:
        """Show ``text`` behind the bar; without one, log it if enough time has passed."""
        if self._bar is not None and not self._bar.disable:
            self._bar.set_description_str(text)
        elif time.monotonic() - self._last_s >= self._every_s:
            self._last_s = time.monotonic()
            logger.info("left %s", text)

    def advance(self, done_s: float, more_s: float = 0.0) -> None:
        """Count a run as finished, and add the seconds of a run that it causes."""
        if self._bar is not None:
            self._bar.total = (self._bar.total or 0) + more_s
            self._bar.update(done_s)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


class LocalRunner:
    """Runs cells in their order, one at a time or several on separate sets of cores.

    Parameters
    ----------
    cells : mapping
        By key, in the order to run them.
    expected_s : mapping
        Expected seconds by key.
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
    """

    def __init__(
        self,
        cells: Mapping[str, Cell],
        expected_s: Mapping[str, float],
        work: Work,
        *,
        deadline: float = math.inf,
        repeat_until: float = math.inf,
        on_end: Callable[[Cell, Run], None] | None = None,
        metronome: bool = True,
    ) -> None:
        self.ended: list[str] = []
        self._times = TimeLeft(cells, expected_s)
        self._cells = self._times.left  # in their order, the running ones included
        self._running: set[str] = set()
        self._work, self._on_end = work, on_end
        self._deadline, self._repeat_until = deadline, repeat_until
        self._metronome = metronome
        self._lock = threading.Lock()
        self._disturbed = self._undisturbed = 0
        self._bar = ProgressBar(self._times.total_s())

    def run(
        self, core_sets: Sequence[Sequence[int]] = (), stop: Callable[[], None] | None = None
    ) -> None:
        """Run the cells on each of several core sets, then those too large for one, one by one.

        ``stop`` ends the runs of other threads when one raises.
        """
        try:
            if len(core_sets) > 1:
                with ThreadPoolExecutor(len(core_sets)) as pool:
                    try:
                        threads = [pool.submit(self._run_on, cores) for cores in core_sets]
                        for thread in wait(threads, return_when=FIRST_EXCEPTION).done:
                            thread.result()
                    except BaseException:
                        self._deadline = -math.inf
                        if stop is not None:
                            stop()
                        raise
            self._run_on(None)
        finally:
            self._bar.close()

    @property
    def left(self) -> int:
        """How many cells were not run."""
        return len(self._cells)

    @property
    def left_s(self) -> float:
        """The seconds that the cells left are expected to take."""
        return self._times.total_s()

    def drop_repeats(self) -> None:
        """Drop the repeats of noisy runs that are not running."""
        for key in self._cells.keys() - self._running:
            if NOISY_REPEAT <= self._cells[key].repeat < ANCHOR_REPEAT:
                del self._cells[key]

    def expected_s(self) -> float:
        """Return `left_s` with repeats to come, if as many runs are disturbed as so far."""
        count = self._disturbed + self._undisturbed
        if not self._disturbed or time.monotonic() >= self._repeat_until:
            return self.left_s
        waiting = ((k, c) for k, c in self._cells.items() if k not in self._running)
        first_s = sum(self._times.cell_s(k, c) for k, c in waiting if c.repeat < NOISY_REPEAT)
        return self.left_s + self._disturbed / count * first_s

    def _run_on(self, cores: Sequence[int] | None) -> None:
        # One metronome for each thread that measures: it ends with the thread, like the runs.
        with Metronome(enabled=self._metronome) as metronome:
            while (taken := self._take(cores)) is not None:
                start = time.monotonic()
                run = self._work(taken[1], cores, metronome)
                with self._lock:
                    self._running.discard(taken[0])
                    if run is None:
                        return
                    self._finish(*taken, run, time.monotonic() - start)

    def _take(self, cores: Sequence[int] | None) -> tuple[str, Cell] | None:
        """Return the next cell that ends by the deadline, and fits beside others on ``cores``."""
        with self._lock:
            if time.monotonic() >= self._repeat_until:
                self.drop_repeats()
            left_s = self._deadline - time.monotonic()
            for key, cell in self._cells.items():
                needs = cell.configuration
                fits = cores is None or (needs.cpus <= len(cores) and not needs.gpus)
                if fits and key not in self._running and self._times.cell_s(key, cell) <= left_s:
                    self._running.add(key)
                    subject = f" sub-{cell.subject}" if cell.subject else ""
                    count = len(self.ended) + len(self._cells)
                    number = f"run {len(self.ended) + 1} of {count}"
                    left = format_seconds(self.expected_s())
                    self._bar.describe(f"{left}, {number}: {cell.app}{subject}, {needs.label}")
                    return key, cell
            return None

    def _finish(self, key: str, cell: Cell, run: Run, took_s: float) -> None:
        self.ended.append(key)
        self._times.finish(key, took_s)
        expected_s, more_s = self._times.first_s[key], 0.0
        if cell.repeat < NOISY_REPEAT and time.monotonic() < self._repeat_until:
            # A run that did not complete has no time to be measured better.
            disturbed = run.noisy and run.outcome == "completed"
            self._disturbed += disturbed
            self._undisturbed += not disturbed
            if disturbed:
                repeated, more_s = repeat_of(cell), expected_s
                self._cells[repeated.key] = repeated
                self._times.first_s[repeated.key] = expected_s
        self._bar.advance(expected_s, more_s)
        if self._on_end is not None:
            self._on_end(cell, run)


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
    recorded: Mapping[str, Run] | None = None,
    probes: Probes | None = None,
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
    start, folder = time.monotonic(), settings.runs
    folder.mkdir(parents=True, exist_ok=True)
    sweep_abandoned()
    with driver_lock(folder):
        for partial in folder.glob(PARTIAL + "*"):
            sweep(partial) if partial.is_dir() else partial.unlink()
        elsewhere, here = recorded or {}, runs_in(folder)
        again = tried_again(
            plan.cells.keys() - elsewhere.keys(), here, settings.conditions.time_limit_s
        )
        runs = {**elsewhere, **here}
        repeat_noisy_s = settings.repeat_noisy_s
        missing = missing_cells(
            plan.cells, runs, again, noisy=repeat_noisy_s is None or repeat_noisy_s > 0
        )
        _check_runnable(missing, plan.paths, settings.apps)
        if count := len((plan.cells.keys() & runs.keys()) - again):
            logger.info("%d of %d runs are on record", count, len(plan.cells))
        if again:
            logger.info("%d runs that failed or were stopped are tried once more", len(again))
        if not missing:
            return Progress([], 0, 0.0)
        sitting = open_sitting(
            folder, {run.sitting for run in runs.values()}, probes, settings.host
        )
        local_runs = [
            dataclasses.replace(cell, repeat=cell.repeat + sitting.number)
            for cell in plan.local_runs
        ]
        missing = {**{cell.key: cell for cell in local_runs}, **missing}
        times = _times_of(missing, plan.expected_s)
        deadline = start + (math.inf if settings.stop_after_s is None else settings.stop_after_s)
        first_s = 2 * sum(times[cell.key] for cell in local_runs)
        if first_s and time.monotonic() + first_s > deadline:
            took = format_seconds(first_s)
            logger.warning("the time is too short: a sitting starts with local runs of %s", took)
            return Progress([], len(missing) - len(local_runs), sum(times.values()))
        failures, stop = Failures(here.values()), threading.Event()
        recorder = Recorder(
            folder, settings.apps, plan.paths, plan.recipes, settings.conditions, sitting,
            stop.is_set,
        )  # fmt: skip
        stop_at = deadline if settings.stop_running and deadline < math.inf else None

        def on_end(cell: Cell, run: Run) -> None:
            if on_record is not None:
                on_record(folder / run.cell_key)
            failures.count(cell, run.outcome, folder / run.cell_key)

        runner = LocalRunner(
            missing,
            times,
            lambda cell, cores, metronome: recorder.record(cell, cores, stop_at, metronome),
            deadline=deadline,
            repeat_until=start + (math.inf if repeat_noisy_s is None else repeat_noisy_s),
            on_end=on_end,
            metronome=settings.conditions.metronome,
        )
        sets = core_sets(sorted(os.sched_getaffinity(0)), settings.parallel)
        for cell in local_runs:
            recorder.warm_up(cell)
        runner.run(sets, stop=stop.set)
        if repeat_noisy_s is not None:  # a repeat for which the time did not suffice is not due
            runner.drop_repeats()
        return Progress([folder / key for key in runner.ended], runner.left, runner.left_s)


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


def tried_again(
    keys: Iterable[str], runs: Mapping[str, Run], time_limit_s: float | None
) -> set[str]:
    """Return which of ``keys`` have a record that is worth another try.

    These are failed runs, and runs stopped at a shorter time than the limit is now: the user has
    started the campaign again and may have mended the cause. ``time_limit_s`` is the present limit
    of a run; None without one.
    """
    again = set()
    for key in keys:
        run = runs.get(key)
        if run is not None and (
            run.outcome == "failed"
            or (
                run.outcome == "timeout"
                and run.limit_s is not None
                and (time_limit_s is None or run.limit_s < time_limit_s)
            )
        ):
            again.add(key)
    return again


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
        if key in missing or cell.repeat >= NOISY_REPEAT:
            continue
        # A run that did not complete has no time to be measured better.
        if runs[key].noisy and runs[key].outcome == "completed":
            repeated = repeat_of(cell)
            if (name := repeated.key) not in runs:
                missing[name] = repeated
    return missing


@contextlib.contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Allow one driver at a time in ``folder``; the lock file is beside it.

    Raises
    ------
    RunError
        If another process holds it, naming that process.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(process_lock(_lock_file(folder), LOCK_PATIENCE_S))
        except HeldError as held:
            reason = f"another campaign (process {held.pid}) works here"
            raise RunError(reason, folder, "wait for it, or stop it") from None
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a driver works in ``folder``; nothing is created."""
    try:
        with _lock_file(folder).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no lock was ever taken here
    return False


def _lock_file(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"
