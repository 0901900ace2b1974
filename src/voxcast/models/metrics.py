"""Errors and coverage of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def scores(actual: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Return the errors of point predictions.

    Parameters
    ----------
    actual, predictions : array_like, shape (n,)
        Positive values in the target's unit.

    Returns
    -------
    dict
        ``mape`` and ``median_ape`` in percent; ``log_mae``, the mean absolute error of the
        logarithm; ``upp``, the percentage of runs under-predicted, and ``ov_mape``, the mean
        over-prediction in percent over the over-predicted (0 if there are none), as HARP defines
        them (Vallabhajosyula and Ramnath, PEARC 2022: equality counts for neither).
    """
    y = np.asarray(actual, dtype=float)
    p = np.asarray(predictions, dtype=float)
    relative = (p - y) / y
    over = relative > 0
    return {
        "mape": float(100 * np.mean(np.abs(relative))),
        "median_ape": float(100 * np.median(np.abs(relative))),
        "log_mae": float(np.mean(np.abs(np.log(p) - np.log(y)))),
        "upp": float(100 * np.mean(relative < 0)),
        "ov_mape": float(100 * np.mean(relative[over])) if over.any() else 0.0,
    }


def under_requests(
    actual: ArrayLike, upper: ArrayLike, subjects: ArrayLike
) -> tuple[int, int, tuple[float, float]]:
    """Count the subjects with at least one run above its upper bound.

    Runs of one subject are not independent, so subjects are counted, not runs.

    Returns
    -------
    exceeded, subjects : int
        Number of subjects with a run above its bound, and of all subjects.
    interval : tuple of float
        Exact (Clopper-Pearson) 95 % interval of the rate.
    """
    names = np.asarray(subjects)
    above = np.asarray(actual, dtype=float) > np.asarray(upper, dtype=float)
    n = len(np.unique(names))
    exceeded = len(np.unique(names[above]))
    return exceeded, n, binomial_interval(exceeded, n)


def binomial_interval(hits: int, n: int, coverage: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a rate (Clopper and Pearson, Biometrika 1934).

    Examples
    --------
    >>> [round(x, 3) for x in binomial_interval(0, 10)]
    [0.0, 0.308]
    """
    if n == 0:
        return 0.0, 1.0
    from scipy.stats import beta

    tail = (1 - coverage) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high
