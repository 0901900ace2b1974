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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from voxcast.apps.app import choose
from voxcast.apps.checks import check_startable
from voxcast.errors import RunError
from voxcast.files import PARTIAL, process_lock
from voxcast.measure.metronome import Metronome
from voxcast.measure.plan import CampaignPlan, CampaignSettings
from voxcast.measure.processes import (
    Leftover,
    size_bytes,
    sweep,
    sweep_abandoned,
    was_abandoned,
)
from voxcast.measure.record import Failures, Recorder, open_sitting
from voxcast.quantities import format_seconds
from voxcast.records import Cell, Run
from voxcast.runs.series import runs_in

LOCK_PATIENCE_S = 3.0  # a driver that was just killed may hold its lock a little longer
# Weight of the first expectation, in seconds: one unusual run does not dominate.
PRIOR_S = 10.0
EVERY_S = 30.0  # between two lines of progress
QUIET_S = 3600.0  # a file that is being written is touched more often
SKIPPED = {".git", ".venv", "mlruns", "node_modules"}  # without leftovers of ours

Work = Callable[[Cell, Sequence[int] | None, Metronome], Run]
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
        # By kind, seconds as first expected and as measured, of the cells that are done.
        self._done_s: dict[Kind, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def finish(self, key: str, took_s: float) -> None:
        """Count a cell that took ``took_s`` seconds in all."""
        cell = self.left.pop(key)
        first_s, total_s = self._done_s[kind_of(cell)]
        self._done_s[kind_of(cell)] = first_s + self._first_s(cell), total_s + took_s

    def cell_s(self, cell: Cell) -> float:
        """Return the seconds that one cell is now expected to take."""
        # Before a run of its kind is measured all runs count.
        kinds = [kind_of(cell)] if kind_of(cell) in self._done_s else [*self._done_s]
        first_s, took_s = (PRIOR_S + sum(self._done_s[kind][n] for kind in kinds) for n in (0, 1))
        return self._first_s(cell) * took_s / first_s

    def total_s(self) -> float:
        """Return the seconds that all cells left are now expected to take, one after the other."""
        return sum(map(self.cell_s, self.left.values()))

    def _first_s(self, cell: Cell) -> float:
        return self._expected_s.get((cell.app, cell.volume_id), 1.0)


def kind_of(cell: Cell) -> Kind:
    """Return the facts by which runs are expected to take similarly long for their size."""
    return cell.app, cell.scale, cell.configuration.device, cell.configuration.cpus


class LocalRunner:
    """Runs cells in their order, one at a time or several on separate sets of cores.

    Parameters
    ----------
    times : TimeLeft
        The cells to run, and their expected times; what was not run stays in ``left``.
    work : callable
        Runs a cell on some cores (None: all of ours) with the metronome of the thread.
    deadline : float
        Time of the monotonic clock, by which each run is expected to end.
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
        on_end: Callable[[Cell, Run], None] = lambda cell, run: None,
        metronome: bool = True,
    ) -> None:
        self.ended: list[str] = []
        self.stopping = threading.Event()
        self._times, self._work, self._on_end = times, work, on_end
        self._deadline, self._metronome = deadline, metronome
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
                    self.ended.append(key)
                    self._times.finish(key, time.monotonic() - start)
                    self._on_end(cell, run)

    def _take(self, cores: Sequence[int] | None) -> tuple[str, Cell] | None:
        """Return the next cell that ends by the deadline, and fits beside others on ``cores``."""
        with self._lock:
            for key, cell in self._times.left.items():
                needs = cell.configuration
                fits = cores is None or (needs.cpus <= len(cores) and not needs.gpus)
                is_free = key not in self._running and not self.stopping.is_set()
                ends = time.monotonic() + self._times.cell_s(cell) <= self._deadline
                if fits and is_free and ends:
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
    settings: CampaignSettings, plan: CampaignPlan, *, recorded: Mapping[str, Run] | None = None
) -> Progress:
    """Measure the cells of ``plan`` that have no record yet.

    Failed runs of the folder are tried once more, after all others, see `missing_cells`. Each
    local run is made once unrecorded before it is measured, as the first run of an application
    reads its libraries from disk.

    Parameters
    ----------
    recorded : mapping, optional
        Runs by key that count as recorded, though they are not in the run folder.

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
        missing = missing_cells(plan.cells, here, settings.conditions.time_limit_s, elsewhere)
        for cell in missing.values():  # before any run is started
            if cell.volume_id and not plan.paths[cell.volume_id].is_file():
                then = "the images have changed: run `dvc repro catalogue`"
                raise RunError("no such volume", plan.paths[cell.volume_id], then)
        for name, configuration in {(c.app, c.configuration): None for c in missing.values()}:
            check_startable(choose(settings.apps, name), configuration)
        if count := len(plan.cells) - len(missing):
            logger.info("%d of %d runs are on record", count, len(plan.cells))
        if again := len(missing.keys() & here.keys()):
            logger.info("%d runs that failed or were stopped are tried once more", again)
        if not missing:
            return Progress([], 0, 0.0)
        earlier = {run.sitting for run in (*elsewhere.values(), *here.values())}
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
        runner = LocalRunner(
            times,
            lambda cell, cores, metronome: recorder.record(cell, cores, metronome),
            deadline=deadline,
            on_end=lambda cell, run: failures.count(cell, run.outcome, folder / run.cell_key),
            metronome=settings.conditions.metronome,
        )
        recorder = Recorder(
            folder, settings.apps, plan.paths, plan.recipes, settings.conditions, sitting,
            runner.stopping.is_set,
        )  # fmt: skip
        for cell in local_runs:
            recorder.warm_up(cell)
        runner.run(core_sets(sorted(os.sched_getaffinity(0)), settings.parallel))
        return Progress([folder / key for key in runner.ended], len(times.left), times.total_s())


def core_sets(cores: Sequence[int], parallel: int) -> list[list[int]]:
    """Return ``parallel`` disjoint sets of equally many cores, or as many as there are cores.

    Examples
    --------
    >>> core_sets([0, 1, 2, 3, 4], 2)
    [[0, 1], [2, 3]]
    """
    size = max(1, len(cores) // parallel)
    return [list(cores[n : n + size]) for n in range(0, len(cores), size)][:parallel]


def missing_cells(
    cells: Mapping[str, Cell],
    here: Mapping[str, Run],
    time_limit_s: float | None = None,
    elsewhere: Mapping[str, Run] | None = None,
) -> dict[str, Cell]:
    """Return the cells without a record, then those whose record here is worth another try.

    These are failed runs, and runs stopped at a shorter time than ``time_limit_s``, the present
    limit of a run: the user has started the campaign again and may have mended the cause.
    """
    limit_s = math.inf if time_limit_s is None else time_limit_s

    def may_improve(run: Run) -> bool:
        is_short = run.outcome == "timeout" and (run.limit_s or math.inf) < limit_s
        return run.outcome == "failed" or is_short

    left = {key: cell for key, cell in cells.items() if key not in (elsewhere or {})}
    again = {key: cell for key, cell in left.items() if key in here and may_improve(here[key])}
    return {key: cell for key, cell in left.items() if key not in here} | again


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


def project_leftovers(folder: Path, now_s: float | None = None) -> Iterator[Leftover]:
    """Yield unfinished files and folders of a project.

    Parameters
    ----------
    now_s : float, optional
        Seconds since 1970, from which `QUIET_S` is counted back; the present by default.
    """
    quiet_since_s = (time.time() if now_s is None else now_s) - QUIET_S
    for parent, folders, files in os.walk(folder):
        unfinished = sorted(n for n in (*folders, *files) if n.startswith(PARTIAL))
        folders[:] = [name for name in folders if name not in {*unfinished, *SKIPPED}]
        for path in (Path(parent, name) for name in unfinished):
            is_quiet = _changed_s(path) < quiet_since_s and not is_locked(path.parent)
            if is_quiet or was_abandoned(path):
                yield Leftover(
                    "folder" if path.is_dir() else "file", str(path), size_bytes=size_bytes(path)
                )


def _changed_s(path: Path) -> float:
    """Return when a file, or anything in a folder, was changed last, in seconds since 1970."""
    times = [path.lstat().st_mtime]
    for parent, folders, files in os.walk(path):
        times += [Path(parent, name).lstat().st_mtime for name in (*folders, *files)]
    return max(times)
