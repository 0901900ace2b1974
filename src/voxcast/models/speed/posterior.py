"""The speed of a machine and of its sittings, from a prior and the means of sittings.

``mean of a sitting = machine + deviation + error``. The prior of the machine is Student's t, so
that many sittings that agree outweigh a prior far from them, and what sittings differ by is
estimated with it. Both are variances with a scaled inverse chi-squared prior, estimated by
expectation maximisation (Lange, Little and Taylor, JASA 1989).

The mean speed of the runs of one sitting, and how uncertain it is.

Huber's M-estimator of location (Huber, Annals of Mathematical Statistics 1964): a run far from the
others, such as a disturbed one, hardly counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.speed.speeds import SpeedEstimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


MACHINE_FREEDOM = 4.0  # of the prior speed
ITERATIONS, TOLERANCE = 200, 1e-6
SMALLEST_SD = 1e-4


@dataclass(frozen=True)
class Spread:
    """A standard deviation between sittings, with the degrees of freedom of its estimate."""

    sd: float
    freedom: float


@dataclass(frozen=True)
class Posterior:
    """The speed of a machine and of each of its sittings, and what sittings differ by."""

    machine: SpeedEstimate
    sittings: dict[str, SpeedEstimate]
    spread: float


def posterior(
    prior: SpeedEstimate,
    means: Mapping[str, SittingMean],
    days: Mapping[str, str],
    spread: Spread,
) -> Posterior:
    """Return the estimate of a machine's speed from the means of sittings.

    Parameters
    ----------
    prior : SpeedEstimate
        Of the machine.
    means : mapping of str to SittingMean
        By sitting.
    days : mapping of str to str
        Day of each sitting. Sittings of one day are much alike, so that a day counts once where
        the spread is estimated.
    spread : Spread
        Between sittings, before these.
    """
    log_speeds = np.array([mean.log_speed for mean in means.values()])
    errors = np.array([mean.variance for mean in means.values()])
    codes = np.unique([days[name] for name in means], return_inverse=True)[1]
    counts = np.bincount(codes) if len(means) else np.zeros(0)
    prior_variance = max(prior.sd, SMALLEST_SD) ** 2
    spread_variance = max(spread.sd, SMALLEST_SD) ** 2
    between, widening = spread_variance, 1.0
    for _ in range(ITERATIONS if len(means) else 1):
        # The machine, its sittings integrated out.
        weights = 1 / (between + errors)
        variance = 1 / (1 / (widening * prior_variance) + weights.sum())
        mean = variance * (
            prior.log_speed / (widening * prior_variance) + float(weights @ log_speeds)
        )
        share = between * weights  # of the distance from the machine, in each sitting
        deviations = share * (log_speeds - mean)
        uncertain = share * errors + share**2 * variance
        if not len(means):
            break
        by_day = np.bincount(codes, deviations**2 + uncertain) / counts
        last = between
        between = (spread.freedom * spread_variance + by_day.sum()) / (
            spread.freedom + len(counts)
        )
        distance = ((mean - prior.log_speed) ** 2 + variance) / prior_variance
        widening = max((MACHINE_FREEDOM + distance) / (MACHINE_FREEDOM + 1), 1.0)
        if abs(between - last) < TOLERANCE * last:
            break
    sittings = {
        name: SpeedEstimate(
            float(mean + share[n] * (log_speeds[n] - mean)),
            float(share[n] * errors[n] + (1 - share[n]) ** 2 * variance) ** 0.5,
        )
        for n, name in enumerate(means)
    }
    return Posterior(
        SpeedEstimate(float(mean), float(variance) ** 0.5), sittings, float(between) ** 0.5
    )
