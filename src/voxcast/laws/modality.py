"""Whether runs fall into two groups.

Hartigan's dip test decides: it tests for one mode without assuming a family, so neither skewness
nor a heavy tail makes it report two. It is conservative, and blind to two groups that overlap. A
mixture of two lognormals against one, by the gain in BIC, detects these and locates the groups,
but reports two for every skewed sample. So two modes are *detected* when the dip test rejects one
mode, and *suspected* when the gain of the mixture is clear and its groups are separated. The
bimodality coefficient is not used: a lognormal law with one mode passes its threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from diptest import diptest
from scipy import special

from voxcast.laws.law import checked_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ALPHA = 0.05
CLEAR_BIC_GAIN = 10.0  # "very strong" (Kass and Raftery, 1995)
APART = 2.0  # Ashman's D: two normal laws of equal weight have two modes above it
LEAST_WEIGHT = 0.05
LEAST_RUNS = 8
MOST_RUNS = 5000  # a longer sample is reduced to this many runs, evenly spaced by rank


@dataclass(frozen=True)
class LognormalComponent:
    """One of two groups of runs: a component of the mixture, with its share of the runs."""

    weight: float
    median: float
    sigma: float


@dataclass(frozen=True)
class Modality:
    """How many modes a sample has.

    Attributes
    ----------
    verdict : {"one", "two", "two suspected", "too few runs"}
    dip, dip_p : float
        Hartigan's dip, and the probability of a larger one in a uniform sample (the least
        favourable law with one mode), interpolated in a table of critical values.
    bic_gain : float
        BIC of one lognormal less BIC of two; positive favours two.
    separation : float
        Ashman's D of the two groups, of the logarithms.
    groups : tuple of LognormalComponent
        The two groups by median; empty if there are too few runs.
    """

    verdict: Literal["one", "two", "two suspected", "too few runs"]
    dip: float
    dip_p: float
    bic_gain: float
    separation: float
    groups: tuple[LognormalComponent, ...]

    @property
    def bimodal(self) -> bool:
        """Whether two modes were detected, not only suspected."""
        return self.verdict == "two"


def modality(values: ArrayLike) -> Modality:
    """Test whether positive ``values`` have two modes.

    Raises
    ------
    TableError
        If a value is not positive.
    """
    x = checked_sample(values, 1)
    if len(x) < LEAST_RUNS or x[0] == x[-1]:
        nan = float("nan")
        return Modality("one" if len(x) >= LEAST_RUNS else "too few runs", nan, nan, nan, nan, ())
    if len(x) > MOST_RUNS:
        x = x[np.linspace(0, len(x) - 1, MOST_RUNS).round().astype(int)]
    # Times rounded to the second have ties, which alone increase the dip: spread them evenly.
    dip, dip_p = map(float, diptest(_spread(x), sort_x=False))
    groups, gain = _two_lognormals(np.log(x))
    a, b = groups
    scatter = np.sqrt(a.sigma**2 + b.sigma**2)
    separation = float(np.sqrt(2) * abs(np.log(b.median / a.median)) / scatter)
    separated = separation > APART and min(a.weight, b.weight) >= LEAST_WEIGHT
    verdict: Literal["one", "two", "two suspected"] = "one"
    if dip_p < ALPHA:
        verdict = "two"
    elif gain > CLEAR_BIC_GAIN and separated:
        verdict = "two suspected"
    return Modality(verdict, dip, dip_p, gain, separation, groups)


def _spread(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread equal values evenly over the resolution of the sample."""
    values, counts = np.unique(x, return_counts=True)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    offsets = np.concatenate([(np.arange(c) + 0.5) / c - 0.5 for c in counts])
    spread: NDArray[np.float64] = np.repeat(values, counts) + offsets * step
    return spread


def _two_lognormals(
    logs: NDArray[np.float64],
) -> tuple[tuple[LognormalComponent, LognormalComponent], float]:
    """Fit a mixture by expectation-maximisation, started from nine splits of the sample."""
    n = len(logs)
    # A narrower component would win by covering a few equal runs.
    floor = max(0.05 * float(logs.std()), 1e-9)
    best, best_fit = -np.inf, np.zeros((3, 2))
    for share in np.arange(1, 10) / 10:
        cut = int(np.clip(round(share * n), 2, n - 2))
        means = np.array([logs[:cut].mean(), logs[cut:].mean()])
        sigmas = np.maximum([logs[:cut].std(), logs[cut:].std()], floor)
        weights = np.array([cut / n, 1 - cut / n])
        previous = -np.inf
        for _ in range(200):
            z = (logs[:, None] - means) / sigmas
            parts = np.log(weights) - np.log(sigmas) - z**2 / 2 - np.log(2 * np.pi) / 2
            total = special.logsumexp(parts, axis=1)
            likelihood = float(total.sum())
            if likelihood - previous < 1e-8 * n:
                break
            previous = likelihood
            shares = np.exp(parts - total[:, None])
            counts = np.maximum(shares.sum(axis=0), 1e-9)
            weights = counts / counts.sum()
            means = (shares * logs[:, None]).sum(axis=0) / counts
            spread = (shares * (logs[:, None] - means) ** 2).sum(axis=0) / counts
            sigmas = np.maximum(np.sqrt(spread), floor)
        if likelihood > best:
            best, best_fit = likelihood, np.array([weights, means, sigmas])
    sigma = float(logs.std())
    single_likelihood = -n * (np.log(sigma) + np.log(2 * np.pi) / 2 + 0.5)
    gain = 2 * (best - single_likelihood) - 3 * np.log(n)  # five parameters against two
    shorter, longer = sorted(
        (LognormalComponent(float(w), float(np.exp(m)), float(s)) for w, m, s in best_fit.T),
        key=lambda group: group.median,
    )
    return (shorter, longer), float(gain)
