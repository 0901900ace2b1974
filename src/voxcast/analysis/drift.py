"""Drift of a machine between sittings, measured on the anchors at the start of each sitting.

Whether new jobs are of other images or allocations: the population stability index.

PSI = sum over bins of (p - q) ln(p / q), with shares q of the training runs and p of the new ones.
By convention below 0.1 is stable, and 0.25 or more has shifted. Even where nothing shifted it is
not zero: about chi square with B - 1 degrees of freedom, times 1/n + 1/m, so that its mean at 20
jobs, 100 training subjects and 10 bins is near 0.5 (Yurdakul, Statistical properties of population
stability index, Western Michigan University, 2018; Yurdakul and Naranjo, Journal of Risk Model
Validation, 2020). Here this mean and its scatter are simulated by drawing both from the training
runs, and the mean is subtracted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.records import Configuration
from voxcast.runs.table import REPEATED, anchors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass(frozen=True)
class Anchor:
    """One run that was repeated at the start of several sittings.

    Attributes
    ----------
    cpu_s : dict of str to float
        CPU time by name of the sitting, in the order of the sittings.
    """

    app: str
    configuration: Configuration
    volume_id: str
    cpu_s: Mapping[str, float]

    @property
    def change(self) -> dict[str, float]:
        """CPU time minus the first sitting's, as a fraction of the latter."""
        first_cpu_s = next(iter(self.cpu_s.values()))
        return {sitting: value / first_cpu_s - 1 for sitting, value in self.cpu_s.items()}

    @property
    def largest(self) -> float:
        """The change with the largest absolute value."""
        return max(self.change.values(), key=abs)


@dataclass(frozen=True)
class Drift:
    """Anchors that were run in more than one sitting, and these sittings in order."""

    sittings: list[str]
    anchors: list[Anchor]

    @property
    def largest(self) -> tuple[Anchor, float]:
        """The anchor that changed most since its first sitting, and its change as a fraction."""
        return max(((anchor, anchor.largest) for anchor in self.anchors), key=lambda p: abs(p[1]))

    @property
    def changes(self) -> int:
        """Number of changes that were measured: sittings after the first, over all anchors."""
        return sum(len(anchor.cpu_s) - 1 for anchor in self.anchors)


def drift(runs: pd.DataFrame) -> Drift | None:
    """Return how the anchors among completed ``runs`` changed; None without a second sitting.

    Anchors disturbed by other work are left out, and every machine is compared with itself only.
    """
    undisturbed = anchors(runs).sort_values("started_at", kind="stable")
    undisturbed = undisturbed[(undisturbed["cpu_s"] > 0) & ~undisturbed["noisy"]]
    changed = []
    for _, repeats in undisturbed.groupby(REPEATED, sort=True, dropna=False):
        times = repeats.groupby("sitting", sort=False)["cpu_s"].median()
        if len(times) > 1:
            first_run = repeats.iloc[0]
            changed.append(
                Anchor(
                    str(first_run["app"]),
                    Configuration(str(first_run["device"]), int(first_run["cpus"])),
                    str(first_run["volume_id"]),
                    {str(name): float(value) for name, value in times.items()},
                )
            )
    sittings = {sitting for anchor in changed for sitting in anchor.cpu_s}
    names = undisturbed["sitting"].drop_duplicates()
    order = [str(name) for name in names if name in sittings]
    return Drift(order, changed) if changed else None


def largest_change_by_noise(cv_percent: float, changes: int, confidence: float = 0.95) -> float:
    """Return the fraction that the largest of several changes stays below by noise alone.

    A change is the difference of two single runs, so its logarithm has the square root of 2 times
    the scatter of repeats. The bound over all changes is Šidák's, which holds for changes
    from a common first run as well.

    Parameters
    ----------
    cv_percent : float
        Coefficient of variation of repeats within a sitting.
    changes : int
        Number of changes among which the largest is taken.
    confidence : float
        Probability with which the largest change stays below the bound.

    Examples
    --------
    >>> round(largest_change_by_noise(1.0, 1), 3), round(largest_change_by_noise(1.0, 8), 3)
    (0.028, 0.039)
    """
    from scipy.stats import norm

    confidence_per_change = confidence ** (1 / changes)
    sd_log = math.sqrt(2 * math.log1p((cv_percent / 100) ** 2))
    return math.expm1(float(norm.ppf((1 + confidence_per_change) / 2)) * sd_log)


BINS = 10
HALF_COUNT = 0.5  # added to every bin: an empty one has no logarithm
LARGE = 0.25
SAMPLES = 999


@dataclass(frozen=True)
class FeatureShift:
    """The stability of one feature.

    Attributes
    ----------
    psi : float
        As observed.
    bias : float
        Its average for as many jobs without any shift.
    corrected : float
        Their difference, at least 0.
    shifted : bool
        At least `LARGE` when corrected, and above the largest of all features by chance.
    """

    name: str
    psi: float
    bias: float
    corrected: float
    shifted: bool


def feature_shifts(
    training: pd.DataFrame, new: pd.DataFrame, level: float, seed: int = 0
) -> list[FeatureShift]:
    """Return the stability of all features that differ between rows, least stable first.

    Parameters
    ----------
    training, new : DataFrame
        One row for each subject, with the same columns of features.
    level : float
        Probability that any feature is called shifted where none is.
    """
    rng = np.random.default_rng(seed)
    names, observed, samples = [], [], []
    # The same rows for all features. The training runs are a sample, too, so both are drawn.
    drawn = rng.integers(0, len(training), (SAMPLES, len(new)))
    drawn_training = rng.integers(0, len(training), (SAMPLES, len(training)))
    for name in training.columns:
        codes, new_codes = _codes(training[name], new[name])
        if len(np.union1d(codes, new_codes)) < 2:
            continue
        count = max(int(codes.max()), int(new_codes.max())) + 1
        names.append(str(name))
        expected = np.bincount(codes, minlength=count)
        observed.append(_psi(expected, np.bincount(new_codes, minlength=count)))
        samples.append([
            _psi(
                np.bincount(codes[before], minlength=count),
                np.bincount(codes[after], minlength=count),
            )
            for before, after in zip(drawn_training, drawn, strict=True)
        ])  # fmt: skip
    if not names:
        return []
    simulated = np.array(samples)
    bias = simulated.mean(axis=1)
    largest = (simulated - bias[:, None]).max(axis=0)
    limit = float(np.quantile(largest, 1 - level, method="higher"))
    shifts = [
        FeatureShift(
            name, psi, float(mean), max(psi - float(mean), 0.0),
            psi - float(mean) >= max(LARGE, limit),
        )
        for name, psi, mean in zip(names, observed, bias, strict=True)
    ]  # fmt: skip
    return sorted(shifts, key=lambda shift: -shift.corrected)


def _codes(training: pd.Series, new: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the bins of both: quantiles of the training rows, or categories."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(training):
        both = pd.concat([training, new]).fillna("").astype(str)
        codes = pd.factorize(both, sort=True)[0]
        return codes[: len(training)], codes[len(training) :]
    values, others = training.to_numpy(dtype=float), new.to_numpy(dtype=float)
    edges = np.unique(np.nanquantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
    return np.searchsorted(edges, values, "right"), np.searchsorted(edges, others, "right")


def _psi(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the index from counts by bin.

    Examples
    --------
    >>> round(_psi(np.array([50, 50]), np.array([50, 50])), 3)
    0.0
    >>> _psi(np.array([50, 50]), np.array([90, 10])) > LARGE
    True
    """
    q = (expected + HALF_COUNT) / (expected + HALF_COUNT).sum()
    p = (actual + HALF_COUNT) / (actual + HALF_COUNT).sum()
    return float(np.sum((p - q) * np.log(p / q)))
