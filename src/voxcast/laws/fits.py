"""How a group of runs varies: the families that describe it, its quantiles, and its modes.

Families are ranked by Kolmogorov's distance and by Akaike's criterion. The p-value of a
Kolmogorov-Smirnov test assumes a law fixed in advance. A law fitted to the same sample is closer
to it, so this p-value (``ks_p``, which the literature reports) is too large. ``ks_p_bootstrap``
accounts for the fit: it is the share of samples drawn from the fitted law whose distance from
their refitted law is at least as large (Stute, Gonzáles Manteiga and Presedo Quindimil, Metrika
40, 1993).

Hartigan's dip test decides whether there are two modes: it tests for one mode without assuming a
family, so neither skewness nor a heavy tail makes it report two. It is conservative, and blind to
two groups that overlap. The bimodality coefficient is not used: a lognormal law with one mode
exceeds its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from diptest import diptest
from scipy import stats

from voxcast.errors import TableError
from voxcast.laws.families import (
    FAMILIES,
    FamilyLaw,
    QuantileInterval,
    checked_sample,
    quantile_interval,
)
from voxcast.records import plain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LEAST_RUNS = 5
# Models this close to the best have "substantial support" (Burnham and Anderson, 2002, 2.6).
TIE_AIC = 2.0
QUANTILES = (0.05, 0.5, 0.9, 0.95)
ALPHA = 0.05  # of the dip test
LEAST_RUNS_OF_MODES = 8
MOST_RUNS = 5000  # a longer sample is reduced to this many runs, evenly spaced by rank


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
    n : int
        Size of the sample.
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
        Names in `FAMILIES`; where two are equally close, the earlier comes first.
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
    fits = []
    for family in families:
        law = FAMILIES[family](x)
        ks, aic = ks_distance(law, x), 4 - 2 * law.log_likelihood(x)  # two parameters each
        ks_p = float(stats.kstwo.sf(ks, len(x)))
        ks_p_bootstrap = _bootstrap_p(law, x, ks, bootstrap, seed) if bootstrap else None
        fits.append(Fit(family, law.parameters, ks, ks_p, ks_p_bootstrap, aic, len(x), law))
    # Rounded, so that a normal law and one truncated far from the sample are equally close.
    return sorted(fits, key=lambda fit: round(fit.ks, 10))


def tied_by_aic(fits: Sequence[Fit]) -> list[str]:
    """Return the families within `TIE_AIC` of the smallest AIC, the best first."""
    ordered = sorted(fits, key=lambda fit: round(fit.aic, 8))
    return [fit.family for fit in ordered if fit.aic - ordered[0].aic < TIE_AIC]


def ks_distance(law: FamilyLaw, x: NDArray[np.float64]) -> float:
    """Return the largest distance between the law and the steps of the sorted sample ``x``."""
    n, cdf = len(x), law.cdf(x)
    above = np.arange(1, n + 1) / n - cdf
    below = cdf - np.arange(n) / n
    return float(max(above.max(), below.max()))


def _bootstrap_p(
    law: FamilyLaw, x: NDArray[np.float64], distance: float, draws: int, seed: int
) -> float:
    as_far = 0
    for draw in law.sample(draws * len(x), seed).reshape(draws, len(x)):
        # The smallest draws of a wide law round to 0, which has no logarithm.
        lowest = -np.inf if law.family == "normal" else np.finfo(float).tiny
        sample = np.sort(np.maximum(draw, lowest))
        as_far += ks_distance(FAMILIES[law.family](sample), sample) >= distance
    return (1 + as_far) / (1 + draws)


@dataclass(frozen=True)
class Group:
    """A group of runs: its share of the runs, and its median."""

    weight: float
    median: float


@dataclass(frozen=True)
class Modality:
    """How many modes a sample has.

    Attributes
    ----------
    dip, dip_p : float
        Hartigan's dip, and the probability of a larger one in a uniform sample (the least
        favourable law with one mode), interpolated in a table of critical values.
    groups : tuple of Group
        The two groups of runs by median; empty unless there are two modes.
    """

    verdict: Literal["one", "two", "too few runs"]
    dip: float
    dip_p: float
    groups: tuple[Group, ...] = ()


def modality(values: ArrayLike) -> Modality:
    """Test whether positive ``values`` have two modes.

    Raises
    ------
    TableError
        If a value is not positive.
    """
    x = checked_sample(values)
    if len(x) < LEAST_RUNS_OF_MODES:
        return Modality("too few runs", math.nan, math.nan)
    if x[0] == x[-1]:
        return Modality("one", math.nan, math.nan)
    if len(x) > MOST_RUNS:
        x = x[np.linspace(0, len(x) - 1, MOST_RUNS).round().astype(int)]
    dip, dip_p = map(float, diptest(_spread(x), sort_x=False))
    return (
        Modality("two", dip, dip_p, _groups(x)) if dip_p < ALPHA else Modality("one", dip, dip_p)
    )


def _spread(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread equal values evenly over the resolution of the sample.

    Times rounded to the second have ties, which alone increase the dip.
    """
    values, counts = np.unique(x, return_counts=True)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    offsets = np.concatenate([(np.arange(c) + 0.5) / c - 0.5 for c in counts])
    return np.asarray(np.repeat(values, counts) + offsets * step)


def _groups(x: NDArray[np.float64]) -> tuple[Group, ...]:
    """Split the sorted sample where the logarithms vary least within the two groups."""
    logs, n = np.log(x), len(x)
    scatter = [logs[:cut].var() * cut + logs[cut:].var() * (n - cut) for cut in range(1, n)]
    parts = np.split(x, [1 + int(np.argmin(scatter))])
    return tuple(Group(len(part) / n, float(np.median(part))) for part in parts)


@dataclass(frozen=True)
class Variation:
    """The variation of a group.

    Attributes
    ----------
    sd : float
        Standard deviation, divided by n - 1; 0 for a single run.
    cv : float
        ``sd / mean``.
    fits : tuple of Fit
        Closest first by Kolmogorov's distance; empty for fewer than 5 runs, or if all are equal.
    """

    n: int
    mean: float
    sd: float
    cv: float
    quantiles: tuple[QuantileInterval, ...]
    fits: tuple[Fit, ...]
    modality: Modality

    @property
    def best_by_ks(self) -> str | None:
        """The family closest to the sample."""
        return self.fits[0].family if self.fits else None

    @property
    def tied(self) -> list[str]:
        """Families whose AIC is close to the smallest, the best first."""
        return tied_by_aic(self.fits)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values; NaN and infinity become None."""
        content = asdict(replace(self, fits=()))
        content["fits"] = [
            {name: value for name, value in vars(fit).items() if name != "law"}
            for fit in self.fits
        ]
        content |= {"best_by_ks": self.best_by_ks, "tied_by_aic": self.tied}
        content |= {"best_by_aic": next(iter(self.tied), None)}
        content |= {"bimodal": self.modality.verdict == "two"}
        return dict(plain(content))


def variation(
    values: ArrayLike,
    quantiles: Sequence[float] = QUANTILES,
    bootstrap: int = 0,
    seed: int = 0,
) -> Variation:
    """Describe how positive ``values`` vary.

    Parameters
    ----------
    bootstrap : int
        Samples drawn for the bootstrap p-values of the fits; 0 leaves them out.

    Raises
    ------
    TableError
        If a value is not positive, or the sample is empty.
    """
    x = checked_sample(values)
    mean, sd = float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0
    varies = len(x) >= LEAST_RUNS and x[-1] - x[0] > 1e-12 * x[-1]
    fits = tuple(rank_fits(x, bootstrap=bootstrap, seed=seed)) if varies else ()
    intervals = tuple(quantile_interval(x, p) for p in quantiles)
    return Variation(len(x), mean, sd, sd / mean, intervals, fits, modality(x))
