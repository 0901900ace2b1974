"""Running cells on this machine: their queue, the time they still take, and the progress shown."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from voxcast.errors import RunError
from voxcast.measure.metronome import Metronome
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT, Cell, Run

# Weight of the first expectation, in seconds: one unusual run does not dominate.
PRIOR_S = 10.0
EVERY_S = 60.0  # between two lines of progress without a terminal
FORMAT = "{percentage:3.0f}%|{bar:20}| {elapsed}, left {desc}"

Work = Callable[[Cell, Sequence[int] | None, Metronome], Run | None]
Kind = tuple[str, str, str, int]

logger = logging.getLogger(__name__)


class TimeLeft:
    """Expected seconds of cells, corrected by the runs that are done.

    Parameters
    ----------
    cells : mapping
        The cells to measure, by key.
    expected_s : mapping
        Expected seconds by key, before anything is measured; 1 where it is not known.
    """

    def __init__(self, cells: Mapping[str, Cell], expected_s: Mapping[str, float]) -> None:
        self.first_s: dict[str, float] = {}  # as expected before anything was measured
        self._left_s: dict[Kind, float] = defaultdict(float)
        self._done_s: dict[Kind, float] = defaultdict(float)
        self._took_s: dict[Kind, float] = defaultdict(float)
        for key, cell in cells.items():
            self.add(key, cell, expected_s.get(key, 1.0))

    def add(self, key: str, cell: Cell, expected_s: float) -> None:
        """Add a cell."""
        self.first_s[key] = expected_s
        self._left_s[kind_of(cell)] += expected_s

    def finish(self, key: str, cell: Cell, took_s: float) -> None:
        """Count a cell that took ``took_s`` seconds in all."""
        self.drop(key, cell)
        self._done_s[kind_of(cell)] += self.first_s[key]
        self._took_s[kind_of(cell)] += took_s

    def drop(self, key: str, cell: Cell) -> None:
        """Drop a cell that will not be measured."""
        self._left_s[kind_of(cell)] -= self.first_s[key]

    def cell_s(self, key: str, cell: Cell) -> float:
        """Return the seconds that one cell is now expected to take."""
        return self.first_s[key] * self._factor(kind_of(cell))

    def total_s(self) -> float:
        """Return the seconds that all cells left are now expected to take, one after the other."""
        return sum(left_s * self._factor(kind) for kind, left_s in self._left_s.items())

    def _factor(self, kind: Kind) -> float:
        took_s, done_s = self._took_s.get(kind), self._done_s.get(kind)
        if took_s is None or done_s is None:  # no run of its kind is measured yet
            took_s, done_s = sum(self._took_s.values()), sum(self._done_s.values())
        return (took_s + PRIOR_S) / (done_s + PRIOR_S)


def kind_of(cell: Cell) -> Kind:
    """Return the facts by which runs are expected to take similarly long for their size."""
    return cell.app, cell.scale, cell.configuration.device, cell.configuration.cpus


def repeat_of(cell: Cell) -> Cell:
    """Return the cell that repeats a noisy run of ``cell``."""
    return dataclasses.replace(cell, repeat=cell.repeat + NOISY_REPEAT)


class Progress:
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
        end by then; after `repeat_until` noisy runs are no longer repeated.
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
        self._waiting = deque(cells.items())
        self._times = TimeLeft(cells, expected_s)
        self._work, self._on_end = work, on_end
        self._deadline, self._repeat_until = deadline, repeat_until
        self._metronome = metronome
        self._lock = threading.Lock()
        self._count = len(cells)
        self._disturbed = self._undisturbed = 0
        self._progress = Progress(self._times.total_s())

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
            self._progress.close()

    @property
    def left(self) -> int:
        """How many cells were not run."""
        return len(self._waiting)

    @property
    def left_s(self) -> float:
        """The seconds that the cells left are expected to take."""
        return self._times.total_s()

    def drop_repeats(self) -> None:
        """Drop the repeats of noisy runs that were not run."""
        for entry in [
            (k, c) for k, c in self._waiting if NOISY_REPEAT <= c.repeat < ANCHOR_REPEAT
        ]:
            self._waiting.remove(entry)
            self._times.drop(*entry)
            self._count -= 1

    def expected_s(self) -> float:
        """Return `left_s` with repeats to come, if as many runs are disturbed as so far."""
        count = self._disturbed + self._undisturbed
        if not self._disturbed or time.monotonic() >= self._repeat_until:
            return self.left_s
        first_s = (self._times.cell_s(k, c) for k, c in self._waiting if c.repeat < NOISY_REPEAT)
        return self.left_s + self._disturbed / count * sum(first_s)

    def _run_on(self, cores: Sequence[int] | None) -> None:
        # One metronome for each thread that measures: it ends with the thread, like the runs.
        with Metronome(enabled=self._metronome) as metronome:
            while (entry := self._take(cores)) is not None:
                start = time.monotonic()
                run = self._work(entry[1], cores, metronome)
                with self._lock:
                    if run is None:
                        self._waiting.appendleft(entry)
                        return
                    self._finish(*entry, run, time.monotonic() - start)

    def _take(self, cores: Sequence[int] | None) -> tuple[str, Cell] | None:
        """Return the next cell that ends by the deadline, and fits beside others on ``cores``."""
        with self._lock:
            if time.monotonic() >= self._repeat_until:
                self.drop_repeats()
            left_s = self._deadline - time.monotonic()
            for key, cell in self._waiting:
                needs = cell.configuration
                fits = cores is None or (needs.cpus <= len(cores) and not needs.gpus)
                if fits and self._times.cell_s(key, cell) <= left_s:
                    self._waiting.remove((key, cell))
                    subject = f" sub-{cell.subject}" if cell.subject else ""
                    number = f"run {len(self.ended) + 1} of {self._count}"
                    left = format_seconds(self.expected_s())
                    text = f"{left}, {number}: {cell.app}{subject}, {needs.label}"
                    self._progress.describe(text)
                    return key, cell
            return None

    def _finish(self, key: str, cell: Cell, run: Run, took_s: float) -> None:
        self.ended.append(key)
        self._times.finish(key, cell, took_s)
        expected_s, more_s = self._times.first_s[key], 0.0
        if cell.repeat < NOISY_REPEAT and time.monotonic() < self._repeat_until:
            # A run that did not complete has no time to be measured better.
            disturbed = run.noisy and run.outcome == "completed"
            self._disturbed += disturbed
            self._undisturbed += not disturbed
            if disturbed:
                repeated = repeat_of(cell)
                self._waiting.append((repeated.key, repeated))
                self._times.add(repeated.key, repeated, expected_s)
                self._count += 1
                more_s = expected_s
        self._progress.advance(expected_s, more_s)
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
