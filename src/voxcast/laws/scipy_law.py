"""Laws with parameters whose formulas SciPy provides.

SciPy has no mean above a threshold, so each law implements that itself.
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
    """A law whose fields are its parameters; see `voxcast.laws.law.Law`."""

    continuous: ClassVar[bool] = True

    def _scipy(self) -> tuple[stats.rv_continuous, tuple[float, ...]]:
        """Return SciPy's distribution and its arguments (freezing it is slower than a call)."""
        raise NotImplementedError

    def _mean_above(self, t: float) -> float:
        """Return the mean above ``t``, which is inside the support."""
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters by name."""
        return asdict(self)

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest possible amount."""
        law, parameters = self._scipy()
        low, high = law.support(*parameters)
        return float(low), float(high)

    @property
    def mean(self) -> float:
        """Expected value."""
        law, parameters = self._scipy()
        return float(law.mean(*parameters))

    @property
    def sd(self) -> float:
        """Standard deviation."""
        law, parameters = self._scipy()
        return float(law.std(*parameters))

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density at ``x``."""
        law, parameters = self._scipy()
        return np.asarray(law.pdf(x, *parameters))

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of at most ``x``."""
        law, parameters = self._scipy()
        return np.asarray(law.cdf(x, *parameters))

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of more than ``x``."""
        law, parameters = self._scipy()
        return np.asarray(law.sf(x, *parameters))

    def quantile(self, p: ArrayLike) -> NDArray[np.float64]:
        """Smallest amount that is enough with probability ``p``."""
        law, parameters = self._scipy()
        return np.asarray(law.ppf(p, *parameters))

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Amount that is exceeded with probability ``q``."""
        law, parameters = self._scipy()
        return np.asarray(law.isf(q, *parameters))

    def mean_above(self, t: float) -> float:
        """Expected value of amounts above ``t``; the end of the support if there are none."""
        low, high = self.support
        if t <= low:
            return self.mean
        # Far in the tail the formulas give 0 / 0, where the mean is just above t.
        with np.errstate(all="ignore"):
            mean = self._mean_above(t) if t < high else high
        return min(max(mean, t), high) if np.isfinite(mean) else t

    def sample(self, size: int, seed: int) -> NDArray[np.float64]:
        """Draw ``size`` amounts."""
        law, parameters = self._scipy()
        return np.asarray(
            law.rvs(*parameters, size=size, random_state=np.random.default_rng(seed))
        )
