"""Laws that are not fitted to runs: Pareto, and laws with a bounded support.

The strategies of `voxcast.allocation.requests` were published with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from voxcast.laws.scipy_law import ScipyLaw


@dataclass(frozen=True)
class Pareto(ScipyLaw):
    """Pareto's law: an amount exceeds x >= ``scale`` with probability (scale / x) ** shape."""

    scale: float
    shape: float

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.pareto, (self.shape, 0.0, self.scale)

    def _mean_above(self, t: float) -> float:
        return t * self.shape / (self.shape - 1)


@dataclass(frozen=True)
class Uniform(ScipyLaw):
    """Uniform law between two amounts."""

    low: float
    high: float

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.uniform, (self.low, self.high - self.low)

    def _mean_above(self, t: float) -> float:
        return (t + self.high) / 2


@dataclass(frozen=True)
class Beta(ScipyLaw):
    """Beta law on 0 .. 1."""

    a: float
    b: float

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.beta, (self.a, self.b)

    def _mean_above(self, t: float) -> float:
        longer = special.betaincc(self.a + 1, self.b, t) / special.betaincc(self.a, self.b, t)
        return float(longer) * self.a / (self.a + self.b)


@dataclass(frozen=True)
class BoundedPareto(ScipyLaw):
    """Pareto's law truncated to ``low`` .. ``high``."""

    low: float
    high: float
    shape: float

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        return stats.truncpareto, (self.shape, self.high / self.low, 0.0, self.low)

    def _mean_above(self, t: float) -> float:
        # Integrals of x ** -shape and x ** (-shape - 1) from t to high, as shares of t's powers.
        k, log_ratio = self.shape, np.log(self.high / t)
        amount = log_ratio if k == 1 else -np.expm1((1 - k) * log_ratio) / (k - 1)
        return t * k * float(amount / -np.expm1(-k * log_ratio))
