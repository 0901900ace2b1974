"""Which families describe a sample, by Kolmogorov's distance and by Akaike's criterion.

The p-value of a Kolmogorov-Smirnov test assumes a law fixed in advance. A law fitted to the same
sample is closer to it than that, so this p-value (``ks_p``, which the literature reports) is too
large. ``ks_p_bootstrap`` accounts for the fit: it is the share of samples drawn from the fitted
law whose distance from their refitted law is at least as large (Stute, Gonzáles Manteiga and
Presedo Quindimil, Metrika 40, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from voxcast.errors import TableError
from voxcast.laws.distributions import FAMILIES, FamilyLaw
from voxcast.laws.law import checked_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

LEAST_RUNS = 5
# Models this close to the best have "substantial support" (Burnham and Anderson, 2002, 2.6).
TIE_AIC = 2.0


@dataclass(frozen=True)
class Fit:
    """A fitted law and its distance from the sample.

    Attributes
    ----------
    parameters : dict of str to float
        In the unit of the sample.
    ks : float
        Largest distance between the law and the empirical distribution.
    ks_p : float
        Its p-value as if the law had not been fitted; too large, see the module.
    ks_p_bootstrap : float or None
        Its p-value by parametric bootstrap; None without bootstrap samples.
    aic : float
    n : int
        Size of the sample.
    law : FamilyLaw
        The fitted law.
    """

    family: str
    parameters: dict[str, float]
    ks: float
    ks_p: float
    ks_p_bootstrap: float | None
    aic: float
    n: int
    law: FamilyLaw


def rank_fits(
    values: ArrayLike,
    families: Iterable[str] = tuple(FAMILIES),
    bootstrap: int = 0,
    seed: int = 0,
) -> list[Fit]:
    """Fit the families to positive ``values``, closest first by ``ks``.

    Parameters
    ----------
    families : iterable of str
        Names in `FAMILIES`; of two that are equally close, the earlier comes first.
    bootstrap : int
        Samples drawn for the bootstrap p-value; 0 leaves it out.

    Raises
    ------
    TableError
        If there are fewer than 5 values, they are all equal, or one is not positive.
    """
    x = checked_sample(values, LEAST_RUNS)
    if x[-1] - x[0] <= 1e-12 * x[-1]:
        raise TableError("all runs are equal: there is no variation to fit", "law")
    fits = [_fit(FAMILIES[name], x, bootstrap, seed) for name in families]
    # Rounded, so that a normal law and one truncated far from the sample are equally close.
    return sorted(fits, key=lambda fit: round(fit.ks, 10))


def by_aic(fits: Sequence[Fit]) -> list[Fit]:
    """Order fits by Akaike's criterion, best first."""
    return sorted(fits, key=lambda fit: round(fit.aic, 8))


def tied_by_aic(fits: Sequence[Fit]) -> list[str]:
    """Return the families within `TIE_AIC` of the smallest AIC, the best first."""
    ordered = by_aic(fits)
    return [fit.family for fit in ordered if fit.aic - ordered[0].aic < TIE_AIC]


def ks_distance(law: FamilyLaw, x: NDArray[np.float64]) -> float:
    """Return the largest distance between the law and the steps of the sorted sample ``x``."""
    n = len(x)
    cdf = law.cdf(x)
    above = np.arange(1, n + 1) / n - cdf
    below = cdf - np.arange(n) / n
    return float(max(above.max(), below.max()))


def _fit(family: type[FamilyLaw], x: NDArray[np.float64], bootstrap: int, seed: int) -> Fit:
    law = family.fit(x)
    distance = ks_distance(law, x)
    return Fit(
        family.family,
        law.parameters,
        distance,
        float(stats.kstwo.sf(distance, len(x))),
        _bootstrap_p(law, x, distance, bootstrap, seed) if bootstrap else None,
        law.aic(x),
        len(x),
        law,
    )


def _bootstrap_p(
    law: FamilyLaw, x: NDArray[np.float64], distance: float, draws: int, seed: int
) -> float:
    as_far = 0
    drawn = law.sample(draws * len(x), seed).reshape(draws, len(x))
    for draw in drawn:
        # The smallest draws of a wide law round to 0, which has no logarithm.
        sample = np.sort(np.maximum(draw, np.finfo(float).tiny) if law.positive else draw)
        as_far += ks_distance(type(law).fit(sample), sample) >= distance
    return (1 + as_far) / (1 + draws)
