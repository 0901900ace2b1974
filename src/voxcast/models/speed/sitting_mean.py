"""The mean speed of the runs of one sitting, and how uncertain it is.

Huber's M-estimator of location (Huber, Annals of Mathematical Statistics 1964): a run far from the
others, such as a disturbed one, hardly counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

HUBER = 1.5  # standard deviations, beyond which a run counts less
DISTURBED = 3.0  # standard deviations, beyond which a run says nothing of the speed
MAD_TO_SD = 1.4826  # of a normal distribution
# The expected noise counts as so many runs: three runs alone tell little of their noise.
NOISE_FREEDOM = 3.0
# The runs of a sitting disagree if their variance is four times the expected one, or more than a
# quarter of them are disturbed.
LARGEST_EXCESS, LARGEST_DISTURBED = 4.0, 0.25


@dataclass(frozen=True)
class SittingMean:
    """The mean logarithmic speed of the runs of a sitting, and the variance of that mean.

    ``agree`` is whether the runs differ about as much as the model expects; if not, its bounds do
    not hold for runs like these, however well their mean is known.
    """

    log_speed: float
    variance: float
    agree: bool = True


def sitting_mean(
    log_speeds: Sequence[float], subjects: Sequence[str], noise_sd: float, subject_sd: float
) -> SittingMean:
    """Return the mean speed of a sitting.

    Parameters
    ----------
    log_speeds : sequence of float, length n
        Logarithmic speed by each run.
    subjects : sequence of str, length n
        Subject of each run; runs of one share its deviation.
    noise_sd, subject_sd : float
        Expected standard deviations of runs, and of subjects. Where the runs differ by more than
        that, the variance is taken from their differences.
    """
    values = np.array(log_speeds, dtype=float)
    expected_sd = math.hypot(noise_sd, subject_sd)
    mean = float(np.median(values))
    scale = max(expected_sd, MAD_TO_SD * float(np.median(np.abs(values - mean))))
    limit = HUBER * scale
    for _ in range(20):
        weights = limit / np.maximum(np.abs(values - mean), limit)
        mean = float(weights @ values / weights.sum())
    telling = np.abs(values - mean) <= DISTURBED * scale
    runs = max(int(telling.sum()), 1)
    different = max(len({subjects[n] for n in np.flatnonzero(telling)}), 1)
    excess = 1.0
    if len(values) > 1:
        squares = float((np.clip(values - mean, -limit, limit) ** 2).sum())
        # Few runs show their noise badly, and the model's noise is a lower bound.
        freedom = NOISE_FREEDOM + len(values) - 1
        observed = (NOISE_FREEDOM * expected_sd**2 + squares) / freedom
        excess = max(observed / expected_sd**2, 1.0) if expected_sd > 0 else 1.0
    variance = excess * (noise_sd**2 / runs + subject_sd**2 / different)
    disturbed = 1 - runs / len(values)
    return SittingMean(mean, variance, excess <= LARGEST_EXCESS and disturbed <= LARGEST_DISTURBED)
