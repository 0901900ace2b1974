"""The cells that wait to be measured in a sitting, handed out one by one; a bar shows it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tqdm import tqdm

from voxcast.campaigns.cells import again
from voxcast.campaigns.time_left import TimeLeft
from voxcast.quantities import format_seconds
from voxcast.records import ANCHOR_REPEAT, NOISY_REPEAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from voxcast.records import Cell

BAR = "{percentage:3.0f}%|{bar:20}| {elapsed}, left {desc}"


class CellQueue:
    """Cells in their order; several threads may take from it. A context: it shows a bar.

    Parameters
    ----------
    cells : mapping
        By key, in the order to run them.
    expected_s : mapping
        Expected seconds by key.
    deadline, repeat_until : float, optional
        Times of the monotonic clock: after the first no run is begun, nor one that would not end
        by then; after the second no noisy run is repeated any more.
    """

    def __init__(
        self,
        cells: Mapping[str, Cell],
        expected_s: Mapping[str, float],
        deadline: float | None = None,
        repeat_until: float | None = None,
    ) -> None:
        self.made: list[Path] = []
        self._waiting = deque(cells.items())
        self._times = TimeLeft(cells, expected_s)
        self._deadline = float("inf") if deadline is None else deadline
        self._repeat_until = float("inf") if repeat_until is None else repeat_until
        self._lock = threading.Lock()
        self._closed = False
        self._count = len(cells)
        self._bar = tqdm(total=self._times.total_s(), disable=None, bar_format=BAR)

    def __enter__(self) -> CellQueue:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def take(self, widest: int | None = None) -> tuple[str, Cell] | None:
        """Return the next cell that will end by the deadline, or None: there is no more.

        With ``widest`` it is one that can run beside others: on so many CPUs, and on no GPU.
        """
        with self._lock:
            if self._closed:
                return None
            if time.monotonic() >= self._repeat_until:
                self._drop_repeats()
            left_s = self._deadline - time.monotonic()
            found = next(
                (
                    (n, key, cell)
                    for n, (key, cell) in enumerate(self._waiting)
                    if (widest is None or _beside_others(cell, widest))
                    and self._times.of(key, cell) <= left_s
                ),
                None,
            )
            if found is None:
                return None
            n, key, cell = found
            del self._waiting[n]
            subject = f" sub-{cell.subject}" if cell.subject else ""
            what = f"{cell.app}{subject}, {cell.configuration.label}"
            left = format_seconds(self._times.total_s())
            self._bar.set_description_str(
                f"{left}, run {len(self.made) + 1} of {self._count}: {what}"
            )
            return key, cell

    @contextlib.contextmanager
    def finished(
        self, key: str, cell: Cell, took_s: float, noisy: bool, run: Path
    ) -> Iterator[None]:
        """Count a cell as recorded in ``run``; other threads wait for the block."""
        with self._lock:
            self.made.append(run)
            self._times.done(key, cell, took_s)
            self._bar.update(self._times.raw(key))
            if noisy and cell.repeat < NOISY_REPEAT and time.monotonic() < self._repeat_until:
                repeated = again(cell)
                self._waiting.append((repeated.key, repeated))
                self._times.add(repeated.key, repeated, self._times.raw(key))
                self._bar.total = (self._bar.total or 0) + self._times.raw(key)
                self._count += 1
            yield

    def _drop_repeats(self) -> None:
        kept = [one for one in self._waiting if not _is_repeat(one[1])]
        for key, cell in self._waiting:
            if _is_repeat(cell):
                self._times.drop(key, cell)
        self._count -= len(self._waiting) - len(kept)
        self._waiting = deque(kept)

    def close(self) -> None:
        """Hand out no more."""
        self._closed = True

    def left(self) -> int:
        """Return how many cells were not taken."""
        return len(self._waiting)

    def left_s(self) -> float:
        """Return the seconds that the cells left are expected to take."""
        return self._times.total_s()


def _is_repeat(cell: Cell) -> bool:
    return NOISY_REPEAT <= cell.repeat < ANCHOR_REPEAT


def _beside_others(cell: Cell, widest: int) -> bool:
    return cell.configuration.cpus <= widest and not cell.configuration.gpus
