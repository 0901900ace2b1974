"""Costly looks, as often as a share of a core allows."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Throttle:
    """Says when a look is due, from what the last one cost.

    Parameters
    ----------
    share : float
        Of one core, that the looks may take on average.
    pause_s : float
        At least so long from one to the next.
    """

    def __init__(self, share: float, pause_s: float = 0.0) -> None:
        self._share = share
        self._pause_s = pause_s
        self._next = float("-inf")

    def due(self) -> bool:
        """Tell whether enough time has gone by."""
        return time.monotonic() >= self._next

    @contextlib.contextmanager
    def look(self) -> Iterator[None]:
        """Count what the block costs this thread."""
        begun, spent_s = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            cost_s = time.thread_time() - spent_s
            self._next = begun + max(self._pause_s, cost_s / self._share)
