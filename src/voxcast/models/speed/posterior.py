"""The speed of a machine and of its sittings, from a prior and the means of sittings.

``mean of a sitting = machine + deviation + error``. The prior of the machine is Student's t, so
that many sittings that agree outweigh a prior far from them, and what sittings differ by is
estimated with it. Both are variances with a scaled inverse chi-squared prior, estimated by
expectation maximisation (Lange, Little and Taylor, JASA 1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.speed.speeds import SpeedEstimate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.models.speed.sitting_mean import SittingMean

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
