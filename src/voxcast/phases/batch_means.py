"""The error of a sum of times to come, by the means of batches of those that passed."""

from __future__ import annotations

import math

import numpy as np

MAX_BATCHES = 10
MIN_BATCHES = 3


def error_of_sum_s(
    passed_s: np.ndarray, ahead: float, level: float, *, averages_out: bool = False
) -> float:
    """Return the half width of an interval for the sum of the next times.

    Times of successive cycles depend on each other, since a machine has fast and slow minutes;
    the means of batches of them are what the variance is taken from (Law & Kelton, Simulation
    Modeling and Analysis, section 9.5.3). That method takes the batches for independent: the error
    of a sum of m times then has a variance of s² m (m + n) / b, for b batches of the n times
    passed with the standard deviation s between their means. The noise of a machine is not of that
    kind. Its slow part is as strong between long batches as between short ones, as in 1/f noise,
    and the rest of the run averages no more of it out than a batch did. So the mean of the times
    to come is taken for that of one batch more: the variance is s² m² (1 + 1/b). On recorded runs
    this holds its level better, see the page on phases.

    Parameters
    ----------
    passed_s : ndarray, shape (n,)
        Times of successive cycles. Batches are about the square root of their number, 3 to 10;
        of fewer than 3 the half width is infinite. Ticks would not do: their number may differ
        from cycle to cycle, as that of inner iterations until something converges.
    ahead : float
        Number of cycles to come, m.
    level : float
        Probability that the sum is in the interval, by Student's t.
    averages_out : bool
        Take batches for independent.
    """
    from scipy import stats

    if ahead <= 0:
        return 0.0
    batches = min(MAX_BATCHES, max(MIN_BATCHES, math.isqrt(len(passed_s))))
    if len(passed_s) < batches:
        return math.inf
    means_s = [batch.mean() for batch in np.array_split(passed_s, batches)]
    relative = (ahead + len(passed_s)) / (ahead * batches) if averages_out else 1 + 1 / batches
    quantile = float(stats.t.ppf((1 + level) / 2, batches - 1))
    return float(quantile * np.std(means_s, ddof=1) * ahead * math.sqrt(relative))
