"""Confidence intervals of means when runs of one subject are not independent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Interval:
    """A mean with its interval; ``low`` and ``high`` are NaN for a single subject.

    The interval is of 95 %, unless another confidence was given.
    """

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
    values: ArrayLike,
    subjects: Sequence[str],
    weights: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return the mean over runs, with optional weights and an interval over subjects.

    The interval is `standard_error` times the quantile of Student's t with ``subjects - 1``
    degrees of freedom.

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
    n = len(set(subjects))
    if not len(x):
        return Interval(math.nan, math.nan, math.nan, 0)
    mean = float(np.average(x, weights=weights))
    if n < 2:
        return Interval(mean, math.nan, math.nan, n)
    half = float(t.ppf((1 + confidence) / 2, n - 1)) * standard_error(x, subjects, weights)
    return Interval(mean, mean - half, mean + half, n)


def standard_error(
    values: ArrayLike, subjects: Sequence[str], weights: ArrayLike | None = None
) -> float:
    """Return the standard error of a mean over runs; NaN for fewer than two subjects.

    The mean of all runs is a ratio of sums over subjects. Its variance is linearised with
    subjects as clusters (Cochran, Sampling Techniques, 1977, section 6.4).

    Examples
    --------
    >>> standard_error([1.0, 3.0], ["a", "b"])
    1.0
    """
    x, w, cluster = _clusters(values, subjects, weights)
    n = len(set(subjects))
    if n < 2:
        return math.nan
    excess = np.bincount(cluster, weights=w * (x - np.average(x, weights=w)))
    return math.sqrt(n / (n - 1) * float(np.sum(excess**2))) / float(w.sum())


def cautious_mean(
    values: ArrayLike, subjects: Sequence[str], weights: ArrayLike | None = None
) -> Interval:
    """Return the mean of differences, with an interval that one more subject cannot overturn.

    The interval of Student's t is too narrow for few subjects and skewed differences: the rare
    subjects on the other side are often not in the sample. So each end is as in `clustered_mean`
    with one more subject, on that side of zero, whose difference is as large as the largest one.
    A single large difference on the other side must not widen the interval towards zero: for each
    end it first counts as the second largest on its side. An interval of fewer than six subjects
    always includes zero.

    Examples
    --------
    >>> clustered_mean([1.0, 1.1, 0.9], ["a", "b", "c"]).low > 0
    True
    >>> cautious_mean([1.0, 1.1, 0.9], ["a", "b", "c"]).low > 0
    False
    >>> cautious_mean([0.05] * 9 + [1.0], list("abcdefghij")).low > 0
    True
    """
    mean = clustered_mean(values, subjects, weights)
    if not mean.bounded:
        return mean
    x, w, cluster = _clusters(values, subjects, weights)
    low = _low_with_one_more(x, w, cluster)
    return replace(mean, low=low, high=-_low_with_one_more(-x, w, cluster))


def _low_with_one_more(x: np.ndarray, w: np.ndarray, cluster: np.ndarray) -> float:
    """Return the lower end with one more subject below zero, the largest mean above it limited."""
    weight_by_subject = np.bincount(cluster, weights=w)
    means = np.bincount(cluster, weights=w * x) / weight_by_subject
    second, first = np.sort(means)[-2:]
    excess = np.where(means == first, means - max(second, 0.0), 0.0).clip(min=0.0)
    largest = float(np.max(np.abs(means - excess)))
    names = [*map(str, cluster), "one more"]
    weights = [*w, float(weight_by_subject.mean())]
    return clustered_mean([*(x - excess[cluster]), -largest], names, weights).low


def _clusters(
    values: ArrayLike, subjects: Sequence[str], weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, weights and the number of the subject of each run."""
    x = np.asarray(values, dtype=float)
    w = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=float)
    _, cluster = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)
    return x, w, cluster


def exponential(logs: Interval) -> Interval:
    """Return the geometric mean and its interval, from the mean and interval of the logarithms.

    Examples
    --------
    >>> exponential(Interval(0.0, 0.0, 0.0, 2))
    Interval(value=1.0, low=1.0, high=1.0, subjects=2)
    """
    # The exponent is limited so that a very wide interval cannot overflow.
    value, low, high = (math.exp(min(x, 700.0)) for x in (logs.value, logs.low, logs.high))
    return Interval(value, low, high, logs.subjects)
