"""Wall time of an action."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_seconds(action: Callable[[], object], repeats: int) -> float:
    """Return the median wall time of several calls."""
    return statistics.median(seconds(action) for _ in range(repeats))
