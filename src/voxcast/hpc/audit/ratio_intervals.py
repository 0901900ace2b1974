"""Ratios of sums over jobs, with intervals that respect what was submitted together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 1000
# More groups of jobs are merged at random, which leaves the interval as it is.
MOST_GROUPS = 2000
LEAST_GROUPS = 5


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums; low and high are None where too few groups tell its interval."""

    value: float
    low: float | None
    high: float | None
    groups: int


def ratio_of(
    numerator: Floats, denominator: Floats, groups: NDArray[np.int64], seed: int = 0
) -> Ratio:
    """Return the ratio of the sums, with a 95 % bootstrap interval over groups.

    Parameters
    ----------
    numerator, denominator : ndarray, shape (n,)
    groups : ndarray of int, shape (n,)
        Jobs of one group are resampled together.

    Examples
    --------
    >>> ratio_of(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0, 1])).value
    0.5
    """
    value = float(numerator.sum() / denominator.sum())
    _, index = np.unique(groups, return_inverse=True)
    count = int(index.max()) + 1
    if count < LEAST_GROUPS:
        return Ratio(value, None, None, count)
    rng = np.random.default_rng(seed)
    merged = rng.permutation(count)[index] % MOST_GROUPS
    n = min(count, MOST_GROUPS)
    above, below = np.bincount(merged, numerator, n), np.bincount(merged, denominator, n)
    drawn = rng.integers(n, size=(RESAMPLES, n))
    low, high = np.quantile(above[drawn].sum(axis=1) / below[drawn].sum(axis=1), [0.025, 0.975])
    return Ratio(value, float(low), float(high), count)
