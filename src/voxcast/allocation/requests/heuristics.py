"""Heuristic sequences, from mean, standard deviation or median alone.

Each ends where the remaining cost is negligible, or after `MAX_REQUESTS` requests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost_model import NEGLIGIBLE, CostModel
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

MAX_REQUESTS = 10_000
# 1 - 2 ** -53 is the largest double below 1.
_HALVINGS = 53


def mean_by_mean(law: Law, cost: CostModel) -> NDArray[np.float64]:
    """Request the mean, then the mean of longer jobs, and so on."""
    t = [law.mean]
    while len(t) < MAX_REQUESTS and not _negligible(law, cost, np.array(t[-1:])).any():
        next_request = law.mean_above(t[-1])
        if not next_request > t[-1]:
            break
        t.append(next_request)
    return finished(law, cost, np.array(t))


def mean_stdev(law: Law, cost: CostModel) -> NDArray[np.float64]:
    """Request the mean, then a standard deviation more each time.

    Raises
    ------
    ConfigError
        If the standard deviation is infinite.
    """
    sd = law.sd
    if not math.isfinite(sd):
        raise ConfigError("needs a finite standard deviation", "mean_stdev")
    return finished(law, cost, law.mean + sd * np.arange(MAX_REQUESTS, dtype=np.float64))


def mean_doubling(law: Law, cost: CostModel) -> NDArray[np.float64]:
    """Request the mean, then twice as much each time."""
    doublings = int(math.log2(1e200 / law.mean))
    return finished(law, cost, law.mean * np.exp2(np.arange(doublings)))


def median_by_median(law: Law, cost: CostModel) -> NDArray[np.float64]:
    """Request the median, then the median of longer jobs, and so on."""
    return finished(law, cost, law.quantile(1 - np.exp2(-np.arange(1, _HALVINGS + 1))))


def finished(law: Law, cost: CostModel, t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return increasing requests up to the one whose successors have a negligible cost.

    The last request is the end of the support, where that is finite.
    """
    high = law.support[1]
    t = np.unique(np.minimum(t, high))
    t = t[np.isfinite(t) & (t > 0)]
    small = np.flatnonzero(_negligible(law, cost, t))
    if len(small):
        t = t[: small[0] + 1]
    return np.append(t, high) if t[-1] < high < math.inf else t


def _negligible(law: Law, cost: CostModel, t: NDArray[np.float64]) -> NDArray[np.bool_]:
    price = (cost.alpha + cost.beta) * t + cost.gamma
    negligible: NDArray[np.bool_] = price * law.sf(t) <= NEGLIGIBLE * cost.omniscient(law)
    return negligible
