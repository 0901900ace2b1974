"""A rate limit for costly readings, as a share of a core."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Throttle:
    """Decides when a reading is due, by the cost of the last one.

    Parameters
    ----------
    share : float
        Mean share of one core that the readings may use.
    pause_s : float
        Minimum time from one reading to the next.
    """

    def __init__(self, share: float, pause_s: float = 0.0) -> None:
        self._share = share
        self._pause_s = pause_s
        self._next = float("-inf")

    def due(self) -> bool:
        """Tell whether the next reading is due."""
        return time.monotonic() >= self._next

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Measure the CPU time of the block in this thread."""
        start, spent_s = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            cost_s = time.thread_time() - spent_s
            self._next = start + max(self._pause_s, cost_s / self._share)
