"""The empirical law of a sample, and distribution-free quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from voxcast.laws.families import Law, checked_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class EmpiricalLaw(Law):
    """The law that gives every run of a sample the same weight; see `voxcast.laws.families.Law`.

    Its standard deviation is divided by n.
    """

    continuous = False

    def __init__(self, values: ArrayLike) -> None:
        self.values = checked_sample(values)

    @property
    def support(self) -> tuple[float, float]:
        return float(self.values[0]), float(self.values[-1])

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def sd(self) -> float:
        return float(self.values.std())

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        return np.where(np.isin(x, self.values), np.inf, 0.0)

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(1 - np.searchsorted(self.values, x, side="right") / len(self.values))

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        # Rounding first: 0.1 * 30 is a little more than 3.
        longer = np.floor(np.round(np.asarray(q, dtype=np.float64) * len(self.values), 9))
        last = len(self.values) - 1
        return np.asarray(self.values[np.clip(last - longer.astype(int), 0, last)])

    def mean_above(self, t: float) -> float:
        longer = self.values[np.searchsorted(self.values, t, side="right") :]
        return float(longer.mean() if len(longer) else self.values[-1])


@dataclass(frozen=True)
class QuantileInterval:
    """A quantile with an interval between two runs of the sample.

    Attributes
    ----------
    low, high : float or None
        None where the sample is too small to bound the quantile on that side.
    confidence : float
        The probability that the interval contains the quantile, for any law; at least the
        requested one, because ranks are whole numbers.
    """

    p: float
    value: float
    low: float | None
    high: float | None
    confidence: float


def quantile_interval(values: ArrayLike, p: float, confidence: float = 0.95) -> QuantileInterval:
    """Return the ``p`` quantile with a distribution-free interval.

    The number of runs below a quantile is binomial; its tails give the two ranks (David and
    Nagaraja, Order Statistics, 2003, section 7.1).

    Examples
    --------
    >>> interval = quantile_interval(range(1, 101), 0.5)
    >>> interval.low, interval.value, interval.high, round(interval.confidence, 3)
    (40.0, 50.0, 61.0, 0.965)
    >>> quantile_interval(range(1, 21), 0.95).high is None
    True
    """
    x = checked_sample(values, 1)
    n, tail = len(x), (1 - confidence) / 2
    # x[low] is below the quantile unless at most `low` runs are, and likewise x[high] above it.
    low = int(stats.binom.ppf(tail, n, p))
    low -= stats.binom.cdf(low, n, p) > tail  # the largest rank whose tail is small enough
    high = int(stats.binom.ppf(1 - tail, n, p))
    cdf_high = stats.binom.cdf(high, n, p) if high < n else 1.0
    cdf_low = stats.binom.cdf(low, n, p) if low >= 0 else 0.0
    return QuantileInterval(
        p,
        float(EmpiricalLaw(x).quantile(p)),
        float(x[low]) if low >= 0 else None,
        float(x[high]) if high < n else None,
        float(cdf_high - cdf_low),
    )
