"""Distributions of a positive amount: families and their fits, laws from text, and of a sample.

The location is fixed at 0 in all families but the normal. A free location makes the likelihood of
lognormal, gamma and Weibull unbounded as it approaches the shortest run, and fits of ten runs must
not depend on where a search stopped. Every family then has two parameters, so Akaike's criterion
compares likelihoods alone.

The truncated normal is fitted with the bounds 0 and infinity, not with the range of the sample:
the most likely upper bound is the longest run observed, which would exclude every longer run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy import optimize, special, stats

from voxcast.errors import ConfigError, TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


# This far from the bound the truncated mass is below the rounding of a double.
_UNTRUNCATED_SDS = 8.0
# For a sample more dispersed than an exponential the likelihood of the truncated normal has no
# maximum: the fit diverges towards the exponential. It is stopped here, where both agree.
_LEAST_MEAN_SDS = -30.0
# Below it log(k) - digamma(k) equals 1 / (2 k) + 1 / (12 k^2) to double precision.
_STIRLING_GAP = 1e-5


class Law(Protocol):
    """A distribution of a positive amount; arguments and results are in the unit of the sample.

    Attributes
    ----------
    continuous : bool
        Whether the law has a density, rather than probabilities of single amounts.
    """

    continuous: bool = True

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest possible amount."""

    @property
    def mean(self) -> float:
        """Expected value."""

    @property
    def sd(self) -> float:
        """Standard deviation."""

    def pdf(self, x: ArrayLike) -> Floats:
        """Density at ``x``."""

    def cdf(self, x: ArrayLike) -> Floats:
        """Probability of at most ``x``."""
        return np.asarray(1 - self.sf(x))

    def sf(self, x: ArrayLike) -> Floats:
        """Probability of more than ``x``: that a request of ``x`` is too small."""

    def quantile(self, p: ArrayLike) -> Floats:
        """Smallest amount that is enough with probability ``p``."""
        return self.isf(1 - np.asarray(p, dtype=np.float64))

    def isf(self, q: ArrayLike) -> Floats:
        """Amount that is exceeded with probability ``q``; precise where 1 - q rounds to 1."""

    def mean_above(self, t: float) -> float:
        """Expected value of amounts above ``t``; the end of the support if there are none."""


def checked_sample(values: ArrayLike, least: int = 1) -> Floats:
    """Return positive amounts as a sorted array.

    Raises
    ------
    TableError
        If there are fewer than ``least``, or one is not a positive finite number.
    """
    x = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if len(x) < least or not (np.isfinite(x).all() and (x > 0).all()):
        problem = f"needs {least} or more amounts, each a positive finite number"
        raise TableError(problem, f"law of {len(x)} runs")
    return x


@dataclass(frozen=True)
class FamilyLaw(Law):
    """A law of a family, computed by SciPy; see `Law`.

    Attributes
    ----------
    parameters : dict of str to float
        By name, as they are reported.
    distribution, arguments : rv_continuous, tuple of float
        SciPy's distribution and its arguments; freezing it is slower than a call.
    above : callable
        Returns the mean above an amount inside the support, which SciPy lacks.
    """

    family: str
    parameters: dict[str, float]
    distribution: stats.rv_continuous = field(repr=False, compare=False)
    arguments: tuple[float, ...] = field(repr=False)
    above: Callable[[float], float] = field(repr=False, compare=False)

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.distribution.support(*self.arguments)
        return float(low), float(high)

    @property
    def mean(self) -> float:
        return float(self.distribution.mean(*self.arguments))

    @property
    def sd(self) -> float:
        return float(self.distribution.std(*self.arguments))

    def pdf(self, x: ArrayLike) -> Floats:
        return np.asarray(self.distribution.pdf(x, *self.arguments))

    def sf(self, x: ArrayLike) -> Floats:
        return np.asarray(self.distribution.sf(x, *self.arguments))

    def isf(self, q: ArrayLike) -> Floats:
        return np.asarray(self.distribution.isf(q, *self.arguments))

    def mean_above(self, t: float) -> float:
        low, high = self.support
        if t <= low:
            return self.mean
        # Far in the tail the formulas give 0 / 0, where the mean is just above t.
        with np.errstate(all="ignore"):
            mean = float(self.above(t)) if t < high else high
        return min(max(mean, t), high) if np.isfinite(mean) else t

    def sample(self, size: int, seed: int) -> Floats:
        """Draw ``size`` amounts, the same ones for the same seed."""
        rng = np.random.default_rng(seed)
        return np.asarray(self.distribution.rvs(*self.arguments, size=size, random_state=rng))

    def log_likelihood(self, values: ArrayLike) -> float:
        """Log of the density of independent ``values``."""
        return float(np.sum(self.distribution.logpdf(values, *self.arguments)))


def normal(mu: float, sigma: float) -> FamilyLaw:
    """Return a normal law; negative times are improbable where the variation is small."""
    return FamilyLaw(
        "normal", {"mu": mu, "sigma": sigma}, stats.norm, (mu, sigma),
        lambda t: mu + sigma * _normal_mean((t - mu) / sigma, np.inf),
    )  # fmt: skip


def truncated_normal(
    mu: float, sigma: float, lower: float = 0.0, upper: float = np.inf
) -> FamilyLaw:
    """Return a normal law truncated to a range; ``mu`` and ``sigma`` hold before that."""
    start, end = (lower - mu) / sigma, (upper - mu) / sigma
    return FamilyLaw(
        "truncated_normal", {"mu": mu, "sigma": sigma, "lower": lower, "upper": upper},
        stats.truncnorm, (start, end, mu, sigma),
        lambda t: mu + sigma * _normal_mean((t - mu) / sigma, end),
    )  # fmt: skip


def _normal_mean(z: float, end: float) -> float:
    """Return the mean of a standard normal between ``z`` and ``end``."""
    log_above, log_above_end = special.log_ndtr(-z), special.log_ndtr(-end)
    log_mass = log_above + np.log1p(-np.exp(log_above_end - log_above))
    heights = np.exp(-(z**2) / 2 - log_mass) - np.exp(-(end**2) / 2 - log_mass)
    return float(heights / np.sqrt(2 * np.pi))


def lognormal(sigma: float, median: float) -> FamilyLaw:
    """Return a lognormal law: logs are normal around log ``median``."""

    def above(t: float) -> float:
        z = np.log(t / median) / sigma
        longer = special.log_ndtr(sigma - z) - special.log_ndtr(-z)
        return median * float(np.exp(sigma**2 / 2 + longer))

    named = {"sigma": sigma, "median": median}
    return FamilyLaw("lognormal", named, stats.lognorm, (sigma, 0.0, median), above)


def gamma(shape: float, scale: float) -> FamilyLaw:
    """Return a gamma law."""
    return FamilyLaw(
        "gamma", {"shape": shape, "scale": scale}, stats.gamma, (shape, 0.0, scale),
        lambda t: shape * scale * special.gammaincc(shape + 1, t / scale)
        / special.gammaincc(shape, t / scale),
    )  # fmt: skip


def weibull(shape: float, scale: float) -> FamilyLaw:
    """Return a Weibull law."""

    def above(t: float) -> float:
        x, k = (t / scale) ** shape, 1 + 1 / shape
        return scale * float(special.gamma(k) * special.gammaincc(k, x) * np.exp(x))

    named = {"shape": shape, "scale": scale}
    return FamilyLaw("weibull", named, stats.weibull_min, (shape, 0.0, scale), above)


def pareto(scale: float, shape: float) -> FamilyLaw:
    """Return Pareto's law: more than x >= ``scale`` has probability (scale / x) ** shape."""
    return FamilyLaw(
        "pareto", {"scale": scale, "shape": shape}, stats.pareto, (shape, 0.0, scale),
        lambda t: t * shape / (shape - 1),
    )  # fmt: skip


def uniform(low: float, high: float) -> FamilyLaw:
    """Return the uniform law between two amounts."""
    return FamilyLaw(
        "uniform", {"low": low, "high": high}, stats.uniform, (low, high - low),
        lambda t: (t + high) / 2,
    )  # fmt: skip


def beta(a: float, b: float) -> FamilyLaw:
    """Return the beta law on 0 .. 1."""
    return FamilyLaw(
        "beta", {"a": a, "b": b}, stats.beta, (a, b),
        lambda t: special.betaincc(a + 1, b, t) / special.betaincc(a, b, t) * a / (a + b),
    )  # fmt: skip


def bounded_pareto(low: float, high: float, shape: float) -> FamilyLaw:
    """Return Pareto's law truncated to ``low`` .. ``high``."""

    def above(t: float) -> float:
        # Integrals of x ** -shape and x ** (-shape - 1) from t to high, as shares of t's powers.
        log_ratio = np.log(high / t)
        amount = log_ratio if shape == 1 else -np.expm1((1 - shape) * log_ratio) / (shape - 1)
        return t * shape * float(amount / -np.expm1(-shape * log_ratio))

    named = {"low": low, "high": high, "shape": shape}
    arguments = (shape, high / low, 0.0, low)
    return FamilyLaw("bounded_pareto", named, stats.truncpareto, arguments, above)


def fit_normal(values: ArrayLike) -> FamilyLaw:
    x = np.asarray(values, dtype=np.float64)
    return normal(float(x.mean()), float(x.std()))


def fit_truncated_normal(values: ArrayLike) -> FamilyLaw:
    x = checked_sample(values, 2)
    mean, sd = float(x.mean()), float(x.std())
    if mean > _UNTRUNCATED_SDS * sd:
        return truncated_normal(mean, sd)
    # Scaled to mean 1, with ratio = mu / sigma. For a fixed ratio the most likely 1 / sigma solves
    # a quadratic equation; the likelihood of an exponential family has one maximum, so its slope
    # along the ratio changes sign once.
    mean_square = float(np.mean((x / mean) ** 2))

    def precision(ratio: float) -> float:
        return float((ratio + np.sqrt(ratio**2 + 4 * mean_square)) / (2 * mean_square))

    def slope(ratio: float) -> float:
        log_hazard = -(ratio**2) / 2 - np.log(2 * np.pi) / 2 - special.log_ndtr(ratio)
        return float(ratio - precision(ratio) + np.exp(log_hazard))

    low, high = _LEAST_MEAN_SDS, 2 * _UNTRUNCATED_SDS
    ratio = low if slope(low) >= 0 else float(optimize.brentq(slope, low, high, xtol=1e-13))
    sigma = mean / precision(ratio)
    return truncated_normal(ratio * sigma, sigma)


def fit_lognormal(values: ArrayLike) -> FamilyLaw:
    logs = np.log(checked_sample(values, 2))
    return lognormal(float(logs.std()), float(np.exp(logs.mean())))


def fit_gamma(values: ArrayLike) -> FamilyLaw:
    x = checked_sample(values, 2)
    # log mean less mean log, in a form that is precise for small variation.
    excess_share = x / x.mean() - 1
    gap = float(np.mean(excess_share - np.log1p(excess_share)))
    if gap < _STIRLING_GAP:
        shape = float((1 + np.sqrt(1 + 4 * gap / 3)) / (4 * gap))
    else:
        # log(shape) - digamma(shape) falls from infinity to 0, so there is one root; the
        # difference is between 1 / (2 shape) and 1 / shape (Alzer, 1997).
        log_shape = optimize.brentq(
            lambda log_shape: log_shape - special.digamma(np.exp(log_shape)) - gap,
            np.log(0.4 / gap), np.log(1.1 / gap), xtol=1e-13,
        )  # fmt: skip
        shape = float(np.exp(log_shape))
    return gamma(shape, float(x.mean()) / shape)


def fit_weibull(values: ArrayLike) -> FamilyLaw:
    logs = np.log(checked_sample(values, 2))
    logs_from_top = logs - logs[-1]  # so that no power overflows

    def excess(log_shape: float) -> float:
        shape = np.exp(log_shape)
        weights = np.exp(shape * logs_from_top)
        return float(weights @ logs_from_top / weights.sum() - 1 / shape - logs_from_top.mean())

    # The slope of the likelihood increases with the shape, so there is one root. The spread of the
    # logs gives its order of magnitude (1.28 / shape for a Weibull law).
    guess = np.log(1.2825 / logs.std())
    low, high = guess - 1.0, guess + 1.0
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    shape = float(np.exp(optimize.brentq(excess, low, high, xtol=1e-13)))
    mean_power = float(np.mean(np.exp(shape * logs_from_top)))
    return weibull(shape, float(np.exp(logs[-1] + np.log(mean_power) / shape)))


# Each returns the maximum likelihood fit to positive values that are not all equal.
FAMILIES: dict[str, Callable[[ArrayLike], FamilyLaw]] = {
    "normal": fit_normal,
    "truncated_normal": fit_truncated_normal,
    "lognormal": fit_lognormal,
    "gamma": fit_gamma,
    "weibull": fit_weibull,
}


_CALL = re.compile(r"\s*([a-z]+)\s*\(([^()]*)\)\s*", re.IGNORECASE)

# Laws for the command line: the names of the arguments, and the law. The arguments follow the
# papers on stochastic jobs (Aupy et al., IPDPS 2019, table 1; Gainaru et al., IPDPS 2020) in order
# and meaning, not SciPy.
NAMED: dict[str, tuple[str, Callable[..., FamilyLaw]]] = {
    "exponential": ("rate", lambda rate: weibull(1.0, 1 / rate)),
    "weibull": ("scale,shape", lambda scale, shape: weibull(shape, scale)),
    "gamma": ("shape,rate", lambda shape, rate: gamma(shape, 1 / rate)),
    "lognormal": ("mu,sigma", lambda mu, sigma: lognormal(sigma, math.exp(mu))),
    "truncnormal": (
        "mean,variance,low,high",
        lambda mean, variance, *limits: truncated_normal(mean, math.sqrt(variance), *limits),
    ),
    "pareto": ("scale,shape", pareto),
    "uniform": ("low,high", uniform),
    "beta": ("a,b", beta),
    "boundedpareto": ("low,high,shape", bounded_pareto),
}


def parse_law(text: str) -> FamilyLaw:
    """Return the law that ``text`` describes; see `NAMED`.

    Raises
    ------
    ConfigError
        If the law is unknown, or its arguments do not give positive amounts with a finite mean.

    Examples
    --------
    >>> parse_law("gamma(2,2)")
    FamilyLaw(family='gamma', parameters={'shape': 2.0, 'scale': 0.5})
    >>> parse_law("truncnormal(8,2,0,inf)").support
    (0.0, inf)
    """
    call = _CALL.fullmatch(text)
    if call is None or call[1].lower() not in NAMED:
        signatures = ", ".join(f"{name}({arguments})" for name, (arguments, _) in NAMED.items())
        raise ConfigError("is not a known law", repr(text), f"choose from {signatures}")
    name = call[1].lower()
    arguments, make = NAMED[name]
    try:
        values = [float(written) for written in call[2].split(",")]
        # Out of the range of a double SciPy warns and returns inf or nan.
        with np.errstate(all="ignore"):
            law = make(*values)
            mean = law.mean
    except (TypeError, ValueError):
        raise ConfigError("needs numbers", text.strip(), f"write {name}({arguments})") from None
    except (OverflowError, ZeroDivisionError):
        mean = math.inf
    if mean == math.inf:
        raise ConfigError("has an infinite mean", text.strip(), "no request has a finite cost")
    if not (mean > 0 and law.support[0] >= 0):
        then = "parameters of scale and shape are above 0, and 0 <= low < high"
        raise ConfigError("is not a law of positive amounts", text.strip(), then)
    return law


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
