"""The error of a sum of times to come, by the means of batches of those that passed."""

from __future__ import annotations

import math

import numpy as np

MAX_BATCHES = 10
MIN_BATCHES = 3


def error_of_sum_s(passed_s: np.ndarray, ahead: float, level: float, cycles: int) -> float:
    """Return the half width of an interval for the sum of the next times.

    Times of successive cycles depend on each other, since a machine has fast and slow minutes, but
    means of b long batches of them hardly do (Law & Kelton, Simulation Modeling and Analysis,
    section 9.5.3). With s their standard deviation, n times passed and m ahead, the error has a
    variance of s² m²/b for m times the mean so far, and s² m n/b for what is to come. Student's t
    has b - 1 degrees of freedom.

    Parameters
    ----------
    passed_s : ndarray, shape (n,)
        Times of successive ticks.
    ahead : float
        Number of ticks to come.
    level : float
        Probability that the sum is in the interval.
    cycles : int
        Repetitions among the ticks. Batches are about the square root of it, 3 to 10; with fewer
        than 3 the half width is infinite.
    """
    from scipy import stats

    if ahead <= 0:
        return 0.0
    batches = min(MAX_BATCHES, max(MIN_BATCHES, math.isqrt(cycles)))
    if cycles < batches:
        return math.inf
    means_s = [batch.mean() for batch in np.array_split(passed_s, batches)]
    variance = np.var(means_s, ddof=1) * ahead * (ahead + len(passed_s)) / batches
    return float(stats.t.ppf((1 + level) / 2, batches - 1) * math.sqrt(variance))
