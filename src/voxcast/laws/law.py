"""The interface of a runtime distribution, fitted or empirical."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Law(Protocol):
    """A distribution of a positive amount; arguments and results are in the unit of the sample."""

    @property
    def continuous(self) -> bool:
        """Whether the law has a density, rather than probabilities of single amounts."""
        ...

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest possible amount."""
        ...

    @property
    def mean(self) -> float:
        """Expected value."""
        ...

    @property
    def sd(self) -> float:
        """Standard deviation."""
        ...

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density at ``x``."""
        ...

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of at most ``x``."""
        ...

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Probability of more than ``x``: that a request of ``x`` is too small."""
        ...

    def quantile(self, p: ArrayLike) -> NDArray[np.float64]:
        """Smallest amount that is enough with probability ``p``."""
        ...

    def isf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Amount that is exceeded with probability ``q``; precise where 1 - q rounds to 1."""
        ...

    def mean_above(self, t: float) -> float:
        """Expected value of amounts above ``t``; the end of the support if there are none."""
        ...

    def sample(self, size: int, seed: int) -> NDArray[np.float64]:
        """Draw ``size`` amounts, the same ones for the same seed."""
        ...


def checked_sample(values: ArrayLike, least: int = 1) -> NDArray[np.float64]:
    """Return positive amounts as a sorted array.

    Raises
    ------
    TableError
        If there are fewer than ``least``, or one is not a positive finite number.
    """
    x = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if len(x) < least:
        raise TableError(f"{len(x)} runs are too few", "law", f"at least {least} are needed")
    if len(x) and not (np.isfinite(x).all() and x[0] > 0):
        raise TableError("every amount must be a positive finite number", "law")
    return x
