"""How sure a mean is when runs of one subject are not independent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval; ``low`` and ``high`` are NaN when one subject gave it."""

    value: float
    low: float
    high: float
    subjects: int

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def covers(self, value: float) -> bool:
        """Whether ``value`` cannot be told from the mean; true when there is no interval."""
        return not self.known or self.low <= value <= self.high


def clustered_mean(values: ArrayLike, subjects: Sequence[str]) -> Interval:
    """Return the mean over runs with a 95 % interval over subjects.

    The mean of all runs is a ratio of sums over subjects; its variance is the linearised one with
    the subject as cluster (Cochran, Sampling Techniques, 1977, section 6.4), and Student's t with
    ``subjects - 1`` degrees of freedom widens it as few subjects deserve.

    Examples
    --------
    >>> clustered_mean([1.0, 3.0, 2.0], ["a", "b", "c"]).value
    2.0
    >>> clustered_mean([1.0, 3.0], ["a", "a"]).known
    False
    """
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    names, cluster = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    n = len(names)
    if not len(x):
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(x.mean())
    if n < 2:
        return Interval(mean, math.nan, math.nan, n)
    excess = np.bincount(cluster, weights=x - mean)
    error = math.sqrt(n / (n - 1) * float(np.sum(excess**2))) / len(x)
    half = float(t.ppf(0.975, n - 1)) * error
    return Interval(mean, mean - half, mean + half, n)
