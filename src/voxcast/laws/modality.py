"""Whether runs fall into two groups.

Hartigan's dip decides: it tests for one mode without supposing a family, so neither skewness nor
a heavy tail makes it say "two". It is cautious, though, and blind to two groups that overlap. A
mixture of two lognormals against one, by the gain in BIC, notices these and says where the groups
lie, but takes every skewed sample for two. So two modes are *found* when the dip says so, and
*suspected* when the mixture gains clearly and its groups are apart. The bimodality coefficient is
not used: a lognormal law of one mode passes its bar.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import special

from voxcast.laws.dip import dip
from voxcast.laws.law import checked_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

ALPHA = 0.05
CLEAR_BIC_GAIN = 10.0  # "very strong" (Kass and Raftery, 1995)
APART = 2.0  # Ashman's D: two normal laws of equal weight have two modes above it
LEAST_WEIGHT = 0.05
LEAST_RUNS = 8
MOST_RUNS = 5000  # of more runs so many are looked at, evenly spaced in their order
DRAWS = 500
# Samples for the test are drawn at these sizes; between them the dip goes with 1 / sqrt(n).
_SIZES = (8, 10, 12, 15, 20, 30, 50, 100, 200, 400)


@dataclass(frozen=True)
class Group:
    """One of two groups of runs: a lognormal component of the mixture."""

    weight: float
    median: float
    sigma: float


@dataclass(frozen=True)
class Modality:
    """What is known of the number of modes.

    Attributes
    ----------
    verdict : {"one", "two", "two suspected", "too few runs"}
    dip, dip_p : float
        Hartigan's dip and how often a uniform sample, the worst case of one mode, has a larger.
    bic_gain : float
        BIC of one lognormal less BIC of two; positive speaks for two.
    separation : float
        Ashman's D of the two groups, of logs.
    groups : tuple of Group
        The two groups by median; empty if there are too few runs.
    """

    verdict: Literal["one", "two", "two suspected", "too few runs"]
    dip: float
    dip_p: float
    bic_gain: float
    separation: float
    groups: tuple[Group, ...]

    @property
    def bimodal(self) -> bool:
        """Whether two modes were found, not just suspected."""
        return self.verdict == "two"


def modality(values: ArrayLike, seed: int = 0) -> Modality:
    """Look for two modes among positive ``values``.

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
    # Times to the second tie, and ties alone make dips: rounding is undone evenly.
    distance = dip(_spread(x))
    p = _dip_p(distance, len(x), seed)
    groups, gain = _two_lognormals(np.log(x))
    a, b = groups
    scatter = np.sqrt(a.sigma**2 + b.sigma**2)
    separation = float(np.sqrt(2) * abs(np.log(b.median / a.median)) / scatter)
    apart = separation > APART and min(a.weight, b.weight) >= LEAST_WEIGHT
    verdict: Literal["one", "two", "two suspected"] = "one"
    if p < ALPHA:
        verdict = "two"
    elif gain > CLEAR_BIC_GAIN and apart:
        verdict = "two suspected"
    return Modality(verdict, distance, p, gain, separation, groups)


def _spread(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread equal values evenly over the resolution of the sample."""
    values, counts = np.unique(x, return_counts=True)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    offsets = np.concatenate([(np.arange(c) + 0.5) / c - 0.5 for c in counts])
    return np.repeat(values, counts) + offsets * step


@functools.cache
def _null(size: int, seed: int) -> NDArray[np.float64]:
    """Return sorted dips, times sqrt(n), of uniform samples."""
    rng = np.random.default_rng([seed, size])
    return np.sort([dip(np.sort(rng.random(size))) for _ in range(DRAWS)]) * np.sqrt(size)


def _dip_p(distance: float, n: int, seed: int) -> float:
    null = _null(max(size for size in _SIZES if size <= n), seed)
    larger = DRAWS - int(np.searchsorted(null, distance * np.sqrt(n)))
    return (1 + larger) / (1 + DRAWS)


def _two_lognormals(logs: NDArray[np.float64]) -> tuple[tuple[Group, Group], float]:
    """Fit by expectation and maximisation from every cut of the sorted sample into tenths."""
    n = len(logs)
    # A component narrower than this would win by sitting on a few equal runs.
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
    alone = -n * (np.log(sigma) + np.log(2 * np.pi) / 2 + 0.5)
    gain = 2 * (best - alone) - 3 * np.log(n)  # five parameters against two
    first, second = sorted(
        (Group(float(w), float(np.exp(m)), float(s)) for w, m, s in best_fit.T),
        key=lambda group: group.median,
    )
    return (first, second), float(gain)
