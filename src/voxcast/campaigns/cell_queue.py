"""The queue of cells to measure in a sitting, handed out one by one; a bar shows the progress."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from voxcast.campaigns.cells import repeat_of
from voxcast.campaigns.progress_bar import ProgressBar
from voxcast.campaigns.time_left import TimeLeft
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from voxcast.records import Cell


class CellQueue:
    """Cells in their order; several threads may take from it. A context that shows a bar.

    Parameters
    ----------
    cells : mapping
        By key, in the order to run them.
    expected_s : mapping
        Expected seconds by key.
    deadline, repeat_until : float, optional
        Times of the monotonic clock. After the deadline no run is started, nor one that would not
        end by then; after `repeat_until` noisy runs are no longer repeated.
    """

    def __init__(
        self,
        cells: Mapping[str, Cell],
        expected_s: Mapping[str, float],
        deadline: float | None = None,
        repeat_until: float | None = None,
    ) -> None:
        self.recorded: list[Path] = []
        self._waiting = deque(cells.items())
        self._times = TimeLeft(cells, expected_s)
        self._deadline = float("inf") if deadline is None else deadline
        self._repeat_until = float("inf") if repeat_until is None else repeat_until
        self._lock = threading.Lock()
        self._closed = False
        self._count = len(cells)
        self._disturbed = self._undisturbed = 0  # runs that were repeated, and that were not
        self._bar = ProgressBar(self._times.total_s())

    def __enter__(self) -> CellQueue:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def take(self, max_cpus: int | None = None) -> tuple[str, Cell] | None:
        """Return the next cell that will end by the deadline, or None if there is none.

        With ``max_cpus`` only cells that can run beside others count: on no more CPUs than that,
        and without a GPU.
        """
        with self._lock:
            if self._closed:
                return None
            if time.monotonic() >= self._repeat_until:
                self.drop_repeats()
            left_s = self._deadline - time.monotonic()
            for position, (key, cell) in enumerate(self._waiting):
                beside = max_cpus is None or _runs_beside_others(cell, max_cpus)
                if beside and self._times.cell_s(key, cell) <= left_s:
                    del self._waiting[position]
                    self._describe(cell)
                    return key, cell
            return None

    def put_back(self, key: str, cell: Cell) -> None:
        """Return a cell that was taken and not recorded."""
        with self._lock:
            self._waiting.appendleft((key, cell))

    @contextlib.contextmanager
    def finished(
        self, key: str, cell: Cell, took_s: float, noisy: bool, run: Path
    ) -> Iterator[None]:
        """Count a cell as recorded in ``run``; other threads wait for the block."""
        with self._lock:
            self.recorded.append(run)
            self._times.finish(key, cell, took_s)
            self._bar.advance(self._times.raw(key))
            is_first = cell.repeat < NOISY_REPEAT and time.monotonic() < self._repeat_until
            self._disturbed += is_first and noisy
            self._undisturbed += is_first and not noisy
            if is_first and noisy:
                repeated = repeat_of(cell)
                self._waiting.append((repeated.key, repeated))
                self._times.add(repeated.key, repeated, self._times.raw(key))
                self._bar.extend(self._times.raw(key))
                self._count += 1
            yield

    def _describe(self, cell: Cell) -> None:
        subject = f" sub-{cell.subject}" if cell.subject else ""
        left = format_seconds(self.expected_s())
        number = f"run {len(self.recorded) + 1} of {self._count}"
        self._bar.describe(f"{left}, {number}: {cell.app}{subject}, {cell.configuration.label}")

    def drop_repeats(self) -> None:
        """Drop the repeats that were not taken."""
        remaining = deque((key, cell) for key, cell in self._waiting if not _is_repeat(cell))
        for key, cell in self._waiting:
            if _is_repeat(cell):
                self._times.drop(key, cell)
        self._count -= len(self._waiting) - len(remaining)
        self._waiting = remaining

    def close(self) -> None:
        """Hand out no more cells."""
        self._closed = True

    def left(self) -> int:
        """Return how many cells were not taken."""
        return len(self._waiting)

    def expected_s(self) -> float:
        """Return `left_s` with repeats to come, if as many runs are disturbed as so far."""
        left_s, count = self._times.total_s(), self._disturbed + self._undisturbed
        if not self._disturbed or time.monotonic() >= self._repeat_until:
            return left_s
        first_s = (self._times.cell_s(k, c) for k, c in self._waiting if c.repeat < NOISY_REPEAT)
        return left_s + self._disturbed / count * sum(first_s)

    def left_s(self) -> float:
        """Return the seconds that the cells left are expected to take."""
        return self._times.total_s()


def _is_repeat(cell: Cell) -> bool:
    return NOISY_REPEAT <= cell.repeat < ANCHOR_REPEAT


def _runs_beside_others(cell: Cell, max_cpus: int) -> bool:
    return cell.configuration.cpus <= max_cpus and not cell.configuration.gpus
