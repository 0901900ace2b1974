"""How good predicted quantiles are, beside their median: pinball loss, CRPS, reliability, joint.

Losses are proper: nobody gains by stating another quantile than the one believed (Gneiting and
Raftery, JASA 2007). All count subjects where they count, because runs of one subject are not
independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.metrics import binomial_interval, under_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

QUARTERS = 4


@dataclass(frozen=True)
class Reliability:
    """Nominal against observed probability of one quantile.

    Attributes
    ----------
    nominal : float
        Stated probability of a subject to be at or below the bound.
    below, subjects : int
        Subjects at or below it, of all.
    interval : tuple of float
        Exact 95 % interval of the observed share.
    """

    nominal: float
    below: int
    subjects: int
    interval: tuple[float, float]


def pinball_losses(
    actual: ArrayLike, quantiles: ArrayLike, probabilities: ArrayLike
) -> np.ndarray:
    """Return the mean pinball loss at each probability (Koenker and Bassett, Econometrica 1978).

    Parameters
    ----------
    actual : array_like, shape (n,)
    quantiles : array_like, shape (n, k)
        Predicted, at ``probabilities``, shape (k,), in the unit of ``actual``.

    Examples
    --------
    >>> pinball_losses([10.0], [[8.0, 12.0]], [0.1, 0.9]).round(3).tolist()
    [0.2, 0.2]
    """
    y, q = np.asarray(actual, dtype=float)[:, None], np.asarray(quantiles, dtype=float)
    p = np.asarray(probabilities, dtype=float)
    losses: np.ndarray = np.maximum(p * (y - q), (p - 1) * (y - q)).mean(axis=0)
    return losses


def crps(actual: ArrayLike, quantiles: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean continuous ranked probability score (Hersbach, 2000), in the unit of values.

    It is twice the integral of the pinball loss over all probabilities (Gneiting and Ranjan,
    JBES 2011); each probability stands for those nearer to it than to the next. Of logarithms it
    is a relative error. Arguments as `pinball_losses`, with increasing probabilities.
    """
    p = np.asarray(probabilities, dtype=float)
    ends = np.concatenate([[0.0], (p[1:] + p[:-1]) / 2, [1.0]])
    return float(2 * np.diff(ends) @ pinball_losses(actual, quantiles, p))


def reliability(
    actual: ArrayLike, quantiles: ArrayLike, probabilities: Sequence[float], subjects: ArrayLike
) -> list[Reliability]:
    """Count the subjects at or below each quantile.

    A bound is stated for all runs of a subject: above the median a subject is below the bound if
    its largest excess is, and below the median if its smallest is.
    """
    y, q = np.asarray(actual, dtype=float), np.asarray(quantiles, dtype=float)
    names, index = np.unique(np.asarray(subjects), return_inverse=True)
    points = []
    for k, probability in enumerate(probabilities):
        excess = y - q[:, k]
        worst = np.full(len(names), -np.inf if probability >= 0.5 else np.inf)
        (np.maximum if probability >= 0.5 else np.minimum).at(worst, index, excess)
        below = int((worst <= 0).sum())
        interval = binomial_interval(below, len(names))
        points.append(Reliability(float(probability), below, len(names), interval))
    return points


def joint_exceedance(
    actual: ArrayLike, upper: ArrayLike, subjects: ArrayLike
) -> tuple[int, int, tuple[float, float]]:
    """Count the subjects with a run above the bound of any target.

    Parameters
    ----------
    actual, upper : array_like, shape (n, targets)

    Returns
    -------
    exceeded, subjects, interval
        As `voxcast.models.metrics.under_requests`.
    """
    excess = (np.asarray(actual, dtype=float) - np.asarray(upper, dtype=float)).max(axis=1)
    return under_requests(excess, np.zeros(len(excess)), subjects)


def covered_by_predicted_quarter(
    actual: ArrayLike, upper: ArrayLike, medians: ArrayLike
) -> list[tuple[int, int]]:
    """Return the runs at or below their bound, and all runs, by quarter of predicted medians."""
    is_covered = np.asarray(actual, dtype=float) <= np.asarray(upper, dtype=float)
    order = np.argsort(np.asarray(medians, dtype=float), kind="stable")
    parts = np.array_split(is_covered[order], QUARTERS)
    return [(int(part.sum()), len(part)) for part in parts]
