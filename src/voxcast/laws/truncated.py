"""A law truncated to a known range, such as the limits of a queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import integrate

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from voxcast.laws.law import Law


# The mean of a slice this thin is its middle: the difference of two tails would be noise.
_SLIVER = 1e-5
# This far in the upper tail the CDF rounds to 1, while survival probabilities keep their digits.
_FAR_OUT = 1e-6


class TruncatedLaw:
    """A continuous law, conditional on ``low`` .. ``high``.

    Raises
    ------
    ConfigError
        If the limits are negative or not increasing, or the law has no mass between them.
    """

    def __init__(self, law: Law, low: float, high: float = math.inf) -> None:
        if not 0 <= low < high:
            raise ConfigError(f"need 0 <= low < high, not {low:g} and {high:g}", "limits")
        self.law = law
        support_low, support_high = law.support
        self.low, self.high = max(low, support_low), min(high, support_high)
        with np.errstate(over="ignore"):  # inside SciPy, where the result is 0
            self._above_low, self._above_high = (float(law.sf(x)) for x in (self.low, self.high))
        self._mass = self._above_low - self._above_high
        if not self._mass > 0:
            raise ConfigError("the law has no mass between them", f"limits {low:g} and {high:g}")

    @property
    def continuous(self) -> bool:
        """Whether the law has a density."""
        return self.law.continuous

    @property
    def support(self) -> tuple[float, float]:
        """The limits, or the ends of the law's support where these are narrower."""
        return self.low, self.high

    @property
    def mean(self) -> float:
        """Expected value."""
        return self.mean_above(self.low)

    @property
    def sd(self) -> float:
        """Standard deviation, by numerical integration."""
        if math.isinf(self.high) and math.isinf(self.law.sd):
            return math.inf
        mean = self.mean
        # E (X - mean)^2 by parts, on both sides of the mean; full_output suppresses warnings.
        below, above = (
            integrate.quad(slope, *ends, full_output=1)[0]
            for slope, ends in (
                (lambda x: 2 * (mean - x) * float(self.cdf(x)), (self.low, mean)),
                (lambda x: 2 * (x - mean) * float(self.sf(x)), (mean, self.high)),
            )
        )
        return math.sqrt(max(below + above, 0.0))

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density at ``x``."""
        inside = (np.asarray(x) >= self.low) & (np.asarray(x) <= self.high)
        return np.where(inside, self.law.pdf(x) / self._mass, 0.0)

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of at most ``x``."""
        return 1 - self.sf(x)

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of more than ``x``."""
        return np.clip((self.law.sf(x) - self._above_high) / self._mass, 0.0, 1.0)

    def quantile(self, p: ArrayLike) -> NDArray[np.float64]:
        """Smallest amount that is enough with probability ``p``."""
        share = np.asarray(p, dtype=np.float64)
        if self._above_low < _FAR_OUT:
            return self._exceeded(self._above_low - share * self._mass)
        probability = 1 - self._above_low + share * self._mass
        return np.clip(self.law.quantile(np.minimum(probability, 1.0)), self.low, self.high)

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Amount that is exceeded with probability ``q``."""
        return self._exceeded(self._above_high + np.asarray(q, dtype=np.float64) * self._mass)

    def _exceeded(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(self.law.isf(np.clip(probability, 0.0, 1.0)), self.low, self.high)

    def mean_above(self, t: float) -> float:
        """Expected value of amounts above ``t``; the end of the support if there are none."""
        t = max(t, self.low)
        above = float(self.law.sf(t))
        mass = above - self._above_high
        if not mass > 0:
            return self.high
        if mass < _SLIVER * above:
            return (t + self.high) / 2
        excluded = self._above_high * self.law.mean_above(self.high) if self._above_high else 0.0
        return min(max((above * self.law.mean_above(t) - excluded) / mass, t), self.high)

    def sample(self, size: int, seed: int) -> NDArray[np.float64]:
        """Draw ``size`` amounts."""
        return self.quantile(np.random.default_rng(seed).random(size))
