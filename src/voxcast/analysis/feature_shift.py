"""Whether new jobs are of other images or allocations: the population stability index.

PSI = sum over bins of (p - q) ln(p / q), with shares q of the training runs and p of the new ones.
By convention below 0.1 is stable, and 0.25 or more has shifted. Even where nothing shifted it is
not zero: about chi square with B - 1 degrees of freedom, times 1/n + 1/m, so that its mean at 20
jobs, 100 training subjects and 10 bins is near 0.5 (Yurdakul, Statistical properties of population
stability index, Western Michigan University, 2018; Yurdakul and Naranjo, Journal of Risk Model
Validation, 2020). Here this mean and its scatter are simulated by drawing both from the training
runs, and the mean is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


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
