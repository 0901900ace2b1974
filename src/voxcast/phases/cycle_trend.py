"""Whether the cycles of a run get longer or shorter, so that their mean does not tell the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxcast.quantities import format_short_seconds

MAX_BATCHES = 10
MIN_BATCHES = 5  # of 4 means in any order, no order is unlikely enough
SIGNIFICANCE = 0.05
LAST = 3  # batches after a sudden change


@dataclass(frozen=True)
class CycleTrend:
    """A trend in the times of cycles.

    Attributes
    ----------
    first_s, last_s : float
        Mean time of a cycle in the first and in the last third of them.
    """

    first_s: float
    last_s: float

    def __str__(self) -> str:
        """Say what becomes of the cycles."""
        become = "longer" if self.last_s > self.first_s else "shorter"
        first, last = format_short_seconds(self.first_s), format_short_seconds(self.last_s)
        return f"cycles get {become}, from {first} in their first third to {last} in their last"


def trend_of(cycle_s: np.ndarray) -> CycleTrend | None:
    """Return the trend in the times of successive cycles, or None if none is seen.

    By the Mann-Kendall test at 5 % on the means of up to ten batches (Mann 1945; Kendall 1975), or
    if the last three of ten are all longer, or all shorter, than any before, as after a sudden
    change, of which the chance is 1 in 60. Both take the means for independent. Slow noise of a
    machine is taken for a trend more often than that: it looks like one, and nothing in the run
    tells which it is.

    Parameters
    ----------
    cycle_s : ndarray, shape (cycles,)
        Times of cycles. In fewer than five no trend is seen.
    """
    from scipy import stats

    if len(cycle_s) < MIN_BATCHES:
        return None
    batches = np.array_split(cycle_s, min(MAX_BATCHES, len(cycle_s)))
    # Times are kept in nanoseconds: equal cycles may differ in the last bits of their sums.
    means_s = np.round([batch.mean() for batch in batches], 9)
    kendall = stats.kendalltau(np.arange(len(means_s)), means_s)
    if not (kendall.pvalue < SIGNIFICANCE or _ends_apart(means_s)):
        return None
    thirds = np.array_split(cycle_s, 3)
    return CycleTrend(float(thirds[0].mean()), float(thirds[-1].mean()))


def _ends_apart(means_s: np.ndarray) -> bool:
    before, last = means_s[:-LAST], means_s[-LAST:]
    return len(means_s) == MAX_BATCHES and (
        bool(last.min() > before.max()) or bool(last.max() < before.min())
    )
