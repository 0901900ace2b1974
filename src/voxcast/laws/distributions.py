"""Families of laws and their fit by maximum likelihood.

Location is fixed at 0 in all families but the normal. A free location makes the likelihood of
lognormal, gamma and Weibull unbounded (as it approaches the shortest run), and fits of ten runs
must not depend on where a search stopped. Every family then has two parameters, so AIC compares
likelihoods alone.

The truncated normal is truncated at 0, not at the range of the sample: the most likely upper
bound is the longest run observed, which would exclude every longer run. A known bound, such as a
limit of the queue, can be passed to `TruncatedNormal`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from scipy import optimize, special, stats

from voxcast.laws.law import checked_sample
from voxcast.laws.scipy_law import ScipyLaw

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# This far from the bound the truncated mass is below the rounding of a double.
_UNTRUNCATED_SDS = 8.0
# For a sample more dispersed than an exponential the likelihood of the truncated normal has no
# maximum: the fit diverges towards the exponential. It is stopped here, where both agree.
_LEAST_MEAN_SDS = -30.0
# Below it log(k) - digamma(k) equals 1 / (2 k) + 1 / (12 k^2) to double precision.
_STIRLING_GAP = 1e-5


@dataclass(frozen=True)
class FamilyLaw(ScipyLaw):
    """A law of a family that can be fitted."""

    family: ClassVar[str]
    positive: ClassVar[bool] = True  # whether amounts below 0 have probability 0

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        """Return the maximum likelihood fit to positive ``values``, not all equal."""
        raise NotImplementedError

    def log_likelihood(self, values: ArrayLike) -> float:
        """Log of the density of independent ``values``."""
        law, parameters = self._scipy()
        return float(np.sum(law.logpdf(values, *parameters)))

    def aic(self, values: ArrayLike) -> float:
        """Akaike's criterion: twice the number of parameters less twice the log likelihood."""
        return 2 * len(fields(self)) - 2 * self.log_likelihood(values)


@dataclass(frozen=True)
class Normal(FamilyLaw):
    """Normal law; the probability of negative times is negligible for small variation."""

    mu: float
    sigma: float
    family: ClassVar[str] = "normal"
    positive: ClassVar[bool] = False

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        x = np.asarray(values, dtype=np.float64)
        return cls(float(x.mean()), float(x.std()))

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.norm, (self.mu, self.sigma)

    def _mean_above(self, t: float) -> float:
        z = (t - self.mu) / self.sigma
        return self.mu + self.sigma * _normal_mean(z, np.inf)


@dataclass(frozen=True)
class TruncatedNormal(FamilyLaw):
    """Normal law truncated to ``lower`` .. ``upper``; ``mu`` and ``sigma`` are the untruncated."""

    mu: float
    sigma: float
    lower: float = 0.0
    upper: float = np.inf
    family: ClassVar[str] = "truncated_normal"

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        x = checked_sample(values, 2)
        mean, sd = float(x.mean()), float(x.std())
        if mean > _UNTRUNCATED_SDS * sd:
            return cls(mean, sd)
        # Scaled to mean 1, with ratio = mu / sigma. For a fixed ratio the most likely 1 / sigma
        # solves a quadratic equation; the likelihood of an exponential family has one maximum, so
        # its slope along the ratio changes sign once.
        mean_square = float(np.mean((x / mean) ** 2))

        def precision(ratio: float) -> float:
            return float((ratio + np.sqrt(ratio**2 + 4 * mean_square)) / (2 * mean_square))

        def slope(ratio: float) -> float:
            log_hazard = -(ratio**2) / 2 - np.log(2 * np.pi) / 2 - special.log_ndtr(ratio)
            return float(ratio - precision(ratio) + np.exp(log_hazard))

        low, high = _LEAST_MEAN_SDS, 2 * _UNTRUNCATED_SDS
        ratio = low if slope(low) >= 0 else float(optimize.brentq(slope, low, high, xtol=1e-13))
        sigma = mean / precision(ratio)
        return cls(ratio * sigma, sigma)

    def aic(self, values: ArrayLike) -> float:
        """Akaike's criterion; the bounds are fixed, not fitted."""
        return 4 - 2 * self.log_likelihood(values)

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        bounds = ((self.lower - self.mu) / self.sigma, (self.upper - self.mu) / self.sigma)
        return stats.truncnorm, (*bounds, self.mu, self.sigma)

    def _mean_above(self, t: float) -> float:
        z, end = ((x - self.mu) / self.sigma for x in (t, self.upper))
        return self.mu + self.sigma * _normal_mean(z, end)


@dataclass(frozen=True)
class Lognormal(FamilyLaw):
    """Lognormal law: logs are normal around log ``median`` with ``sigma``."""

    sigma: float
    median: float
    family: ClassVar[str] = "lognormal"

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        logs = np.log(checked_sample(values, 2))
        return cls(float(logs.std()), float(np.exp(logs.mean())))

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.lognorm, (self.sigma, 0.0, self.median)

    def _mean_above(self, t: float) -> float:
        z = np.log(t / self.median) / self.sigma
        longer = special.log_ndtr(self.sigma - z) - special.log_ndtr(-z)
        return self.median * float(np.exp(self.sigma**2 / 2 + longer))


@dataclass(frozen=True)
class Gamma(FamilyLaw):
    """Gamma law."""

    shape: float
    scale: float
    family: ClassVar[str] = "gamma"

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        x = checked_sample(values, 2)
        # log mean less mean log, in a form that is precise for small variation.
        excess_share = x / x.mean() - 1
        gap = float(np.mean(excess_share - np.log1p(excess_share)))
        if gap < _STIRLING_GAP:
            shape = (1 + np.sqrt(1 + 4 * gap / 3)) / (4 * gap)
            return cls(float(shape), float(x.mean() / shape))

        # log(shape) - digamma(shape) falls from infinity to 0, so there is one root.
        def excess(log_shape: float) -> float:
            shape = np.exp(log_shape)
            return float(log_shape - special.digamma(shape) - gap)

        # The difference is between 1 / (2 shape) and 1 / shape (Alzer, 1997).
        low, high = np.log(0.4 / gap), np.log(1.1 / gap)
        shape = float(np.exp(optimize.brentq(excess, low, high, xtol=1e-13)))
        return cls(shape, float(x.mean()) / shape)

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.gamma, (self.shape, 0.0, self.scale)

    def _mean_above(self, t: float) -> float:
        x, k = t / self.scale, self.shape
        return k * self.scale * float(special.gammaincc(k + 1, x) / special.gammaincc(k, x))


@dataclass(frozen=True)
class Weibull(FamilyLaw):
    """Weibull law."""

    shape: float
    scale: float
    family: ClassVar[str] = "weibull"

    @classmethod
    def fit(cls, values: ArrayLike) -> Self:
        logs = np.log(checked_sample(values, 2))
        logs_from_top = logs - logs[-1]  # so that no power overflows

        def excess(log_shape: float) -> float:
            shape = np.exp(log_shape)
            weights = np.exp(shape * logs_from_top)
            return float(
                weights @ logs_from_top / weights.sum() - 1 / shape - logs_from_top.mean()
            )

        # The slope of the likelihood increases with the shape, so there is one root. The spread of
        # the logs gives its order of magnitude (1.28 / shape for a Weibull law).
        guess = np.log(1.2825 / logs.std())
        low, high = guess - 1.0, guess + 1.0
        while excess(low) > 0:
            low -= 1.0
        while excess(high) < 0:
            high += 1.0
        shape = float(np.exp(optimize.brentq(excess, low, high, xtol=1e-13)))
        mean_power = float(np.mean(np.exp(shape * logs_from_top)))
        return cls(shape, float(np.exp(logs[-1] + np.log(mean_power) / shape)))

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.weibull_min, (self.shape, 0.0, self.scale)

    def _mean_above(self, t: float) -> float:
        x, k = (t / self.scale) ** self.shape, 1 + 1 / self.shape
        return self.scale * float(special.gamma(k) * special.gammaincc(k, x) * np.exp(x))


def _normal_mean(z: float, end: float) -> float:
    """Return the mean of a standard normal between ``z`` and ``end``."""
    log_above, log_above_end = special.log_ndtr(-z), special.log_ndtr(-end)
    log_mass = log_above + np.log1p(-np.exp(log_above_end - log_above))
    heights = np.exp(-(z**2) / 2 - log_mass) - np.exp(-(end**2) / 2 - log_mass)
    return float(heights / np.sqrt(2 * np.pi))


FAMILIES: dict[str, type[FamilyLaw]] = {
    law.family: law for law in (Normal, TruncatedNormal, Lognormal, Gamma, Weibull)
}
