"""Confidence intervals of means when runs of one subject are not independent."""

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
    """A mean with its 95 % interval; ``low`` and ``high`` are NaN for a single subject."""

    value: float
    low: float
    high: float
    subjects: int

    @property
    def bounded(self) -> bool:
        """Whether the interval is finite: there were two subjects or more."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def covers(self, value: float) -> bool:
        """Whether the interval contains ``value``; true where it is not bounded."""
        return not self.bounded or self.low <= value <= self.high


def clustered_mean(
    values: ArrayLike, subjects: Sequence[str], weights: ArrayLike | None = None
) -> Interval:
    """Return the mean over runs, weighted if told, with a 95 % interval over subjects.

    The mean of all runs is a ratio of sums over subjects. Its variance is linearised with
    subjects as clusters (Cochran, Sampling Techniques, 1977, section 6.4); the quantile is that
    of Student's t with ``subjects - 1`` degrees of freedom.

    Examples
    --------
    >>> clustered_mean([1.0, 3.0, 2.0], ["a", "b", "c"]).value
    2.0
    >>> clustered_mean([1.0, 3.0], ["a", "a"]).bounded
    False
    >>> clustered_mean([1.0, 3.0], ["a", "b"], weights=[3.0, 1.0]).value
    1.5
    """
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    names, cluster = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    n = len(names)
    if not len(x):
        return Interval(math.nan, math.nan, math.nan, 0)
    w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=float)
    mean = float(np.average(x, weights=w))
    if n < 2:
        return Interval(mean, math.nan, math.nan, n)
    excess = np.bincount(cluster, weights=w * (x - mean))
    error = math.sqrt(n / (n - 1) * float(np.sum(excess**2))) / float(w.sum())
    half = float(t.ppf(0.975, n - 1)) * error
    return Interval(mean, mean - half, mean + half, n)


def exponential(logs: Interval) -> Interval:
    """Return the geometric mean and its interval, given those of the logarithms.

    Examples
    --------
    >>> exponential(Interval(0.0, 0.0, 0.0, 2))
    Interval(value=1.0, low=1.0, high=1.0, subjects=2)
    """
    # The exponent is limited so that a very wide interval cannot overflow.
    value, low, high = (math.exp(min(x, 700.0)) for x in (logs.value, logs.low, logs.high))
    return Interval(value, low, high, logs.subjects)
