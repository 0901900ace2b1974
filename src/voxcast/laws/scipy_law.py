"""A law whose formulas are SciPy's: what those with parameters have in common.

SciPy has no mean of what lies above a bound, so that each law gives its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class ScipyLaw:
    """A law; its fields are the parameters. See `voxcast.laws.law.Law`."""

    continuous: ClassVar[bool] = True

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        """Return SciPy's law and its arguments; freezing it would cost more than using it."""
        raise NotImplementedError

    def _mean_above(self, t: float) -> float:
        """Return the mean above ``t``, which lies inside the support."""
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters by name."""
        return asdict(self)

    @property
    def support(self) -> tuple[float, float]:
        """Least and largest amount there can be."""
        law, own = self._scipy()
        low, high = law.support(*own)
        return float(low), float(high)

    @property
    def mean(self) -> float:
        """Expected value."""
        law, own = self._scipy()
        return float(law.mean(*own))

    @property
    def sd(self) -> float:
        """Standard deviation."""
        law, own = self._scipy()
        return float(law.std(*own))

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density at ``x``."""
        law, own = self._scipy()
        return np.asarray(law.pdf(x, *own))

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of at most ``x``."""
        law, own = self._scipy()
        return np.asarray(law.cdf(x, *own))

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of more than ``x``."""
        law, own = self._scipy()
        return np.asarray(law.sf(x, *own))

    def quantile(self, p: ArrayLike) -> NDArray[np.float64]:
        """Smallest amount that is enough with probability ``p``."""
        law, own = self._scipy()
        return np.asarray(law.ppf(p, *own))

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Amount that is exceeded with probability ``q``."""
        law, own = self._scipy()
        return np.asarray(law.isf(q, *own))

    def mean_above(self, t: float) -> float:
        """Expected value of what is more than ``t``; the end of the support if nothing is."""
        low, high = self.support
        if t <= low:
            return self.mean
        # Where hardly anything is left the formulas end in 0 / 0; the mean is just above t.
        with np.errstate(all="ignore"):
            mean = self._mean_above(t) if t < high else high
        return min(max(mean, t), high) if np.isfinite(mean) else t

    def sample(self, size: int, seed: int) -> NDArray[np.float64]:
        """Draw ``size`` amounts."""
        law, own = self._scipy()
        return np.asarray(law.rvs(*own, size=size, random_state=np.random.default_rng(seed)))
