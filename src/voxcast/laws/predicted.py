"""A law through predicted quantiles, with lognormal pieces between them.

The logarithm of the amount is a piecewise linear function of the normal score of its probability.
It is monotone, exact at every quantile, and has moments in closed form. Beyond an outermost
quantile the line from the middle quantile to it continues: each tail is the tail of the lognormal
law through these two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy import special

from voxcast.errors import TableError
from voxcast.laws.families import Law

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Equal quantiles would be an amount with a positive probability; for a density to exist they are
# separated by this slope, far below the precision of a measurement.
_LEAST_SLOPE = 1e-6
# Probabilities of the quantiles that summarise a sample of residuals.
_PROBABILITIES = np.array([0.005, 0.01, *np.arange(1, 50) / 50, 0.99, 0.995])


@dataclass(frozen=True, eq=False)
class PredictedLaw(Law):
    """A law from knots; see `voxcast.laws.families.Law`.

    Attributes
    ----------
    scores : ndarray, shape (k,)
        Normal scores of the probabilities, increasing.
    logs : ndarray, shape (..., k)
        Logarithms of the quantiles, increasing. `at_score` and `moment` also take many laws at
        once, all other methods a single one.
    """

    scores: NDArray[np.float64]
    logs: NDArray[np.float64]

    @classmethod
    def of(cls, levels: ArrayLike, values: ArrayLike) -> Self:
        """Return the law with the quantiles ``values`` at ``levels``, at least two.

        Raises
        ------
        TableError
            If levels or values are not increasing, or out of range.

        Examples
        --------
        >>> law = PredictedLaw.of([0.05, 0.5, 0.95], [50, 60, 90])
        >>> law.quantile([0.05, 0.5, 0.95]).round(6).tolist()
        [50.0, 60.0, 90.0]
        """
        p, x = (np.asarray(a, dtype=np.float64) for a in (levels, values))
        if (
            p.ndim != 1 or p.shape != x.shape or len(p) < 2
            or not (p[0] > 0 and p[-1] < 1 and (np.diff(p) > 0).all())
            or not (x[0] > 0 and np.isfinite(x).all() and (np.diff(x) >= 0).all())
        ):  # fmt: skip
            problem = "need two levels or more that increase within 0 and 1"
            then = "with a positive and finite amount each, none below the one before it"
            raise TableError(problem, "predicted quantiles", then)
        return cls(special.ndtri(p), np.log(x))._strictly_increasing()

    @classmethod
    def of_residuals(cls, residuals: ArrayLike) -> Self:
        """Return the law of exp(residual), where residuals are log measured less log predicted.

        It has at most 53 quantiles, as far into the tails as the sample allows, and the median.
        """
        r = np.sort(np.asarray(residuals, dtype=np.float64).ravel())
        if len(r) < 3 or not np.isfinite(r).all():
            raise TableError("needs three finite residuals", "predicted quantiles")
        outermost = 1 / (len(r) + 1)  # its probability
        probabilities = _PROBABILITIES[np.abs(_PROBABILITIES - 0.5) <= 0.5 - outermost]
        logs = np.quantile(r, probabilities, method="weibull").astype(np.float64)
        return cls(special.ndtri(probabilities), logs)._strictly_increasing()

    def scaled(self, median: ArrayLike, down: ArrayLike = 1.0, up: ArrayLike = 1.0) -> Self:
        """Return the law of median * amount ** spread, with ``down`` below 1 and ``up`` above it.

        Applied to a law of residuals this is the law of a run with a predicted median and spread.
        Arrays of shape (n,) give the laws of n runs.
        """
        medians, below, above = (
            np.asarray(a, dtype=np.float64)[..., None] for a in (median, down, up)
        )
        spread = np.where(self.logs > 0, above, below)
        return type(self)(self.scores, np.log(medians) + spread * self.logs)._strictly_increasing()

    def _strictly_increasing(self) -> Self:
        least_steps = _LEAST_SLOPE * np.diff(self.scores, prepend=self.scores[0])
        offset = np.cumsum(least_steps)
        rising = np.maximum.accumulate(self.logs - offset, axis=-1) + offset
        return type(self)(self.scores, rising)

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, np.inf

    @property
    def mean(self) -> float:
        return float(self.moment(1))

    @property
    def sd(self) -> float:
        mean = self.moment(1)
        return float(np.sqrt(np.maximum(self.moment(2) - mean**2, 0.0)))

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        amounts = np.asarray(x, dtype=np.float64)
        z = self.score(amounts)
        slope = self._pieces()[1][np.searchsorted(self.scores, z, side="right")]
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / slope / amounts
        return np.where(np.isfinite(z), density, 0.0)

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(special.ndtr(-self.score(x)))

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        return self.at_score(-special.ndtri(np.asarray(q, dtype=np.float64)))

    def at_score(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return the amounts at normal scores, which unlike probabilities never round to 0 or 1.

        For n laws the result has shape (n, scores).
        """
        scores = np.asarray(z, dtype=np.float64)
        start, slope = self._pieces()
        piece = np.searchsorted(self.scores, scores, side="right")
        with np.errstate(over="ignore"):
            return np.exp(start[..., piece] + slope[..., piece] * scores)

    def mean_above(self, t: float) -> float:
        z = float(self.score(t))
        mass = float(special.ndtr(-z))
        return max(float(self.moment(1, above=z)) / mass, t) if mass > 0 else t

    def moment(self, power: int, above: float = -np.inf) -> NDArray[np.float64]:
        """Return the mean of amount ** power over scores greater than ``above``."""
        start, slope = self._pieces()
        ends = np.clip(np.concatenate([[-np.inf], self.scores, [np.inf]]), above, np.inf)
        # The moment of a lognormal piece is a shifted normal probability, from the thinner tail.
        low, high = ends[:-1] - power * slope, ends[1:] - power * slope
        # In logarithms: where quantiles jump, the factor overflows and the probability vanishes.
        flip = low > 0
        upper, lower = np.where(flip, -low, high), np.where(flip, -high, low)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_ratio = np.where(
                upper > lower, special.log_ndtr(lower) - special.log_ndtr(upper), 0.0
            )
            share = special.log_ndtr(upper) + np.log(-np.expm1(np.minimum(log_ratio, 0.0)))
        moments = np.exp(power * start + (power * slope) ** 2 / 2 + share)
        return np.asarray(moments.sum(axis=-1))

    def score(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the normal scores of amounts."""
        amounts = np.asarray(x, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.maximum(amounts, 0.0))
        start, slope = self._pieces()
        piece = np.searchsorted(self.logs, logs, side="right")
        return np.asarray((logs - start[piece]) / slope[piece])

    def _pieces(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return intercept and slope of log amount over score for k + 1 pieces, tails included."""
        z, y = self.scores, self.logs
        k = len(z)
        upper_middle, lower_middle = k // 2, (k - 1) // 2
        low = (y[..., upper_middle] - y[..., 0]) / (z[upper_middle] - z[0])
        high = (y[..., -1] - y[..., lower_middle]) / (z[-1] - z[lower_middle])
        between = np.diff(y, axis=-1) / np.diff(z)
        slope = np.concatenate([low[..., None], between, high[..., None]], axis=-1)
        start = np.concatenate([y[..., :1], y], axis=-1) - slope * np.concatenate([z[:1], z])
        return start, slope
