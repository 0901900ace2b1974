"""The requests that a task makes one after the other, from its predicted median and bound.

The first request is the recommended one. Later times are those of the optimal sequence of
`voxcast.allocation.requests` for the law through the predicted quantiles; each is at least half as
long again as the one before, as a job that exceeds its bound tells that the law may be too narrow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.site import stepped
from voxcast.laws.predicted import PredictedLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of five factors that of the smallest loss, at worst over recorded runs and published laws; see
# `voxcast.studies.ladder_growth` and results/ladders/growth.json.
LEAST_GROWTH = 1.5
MOST_RUNGS = 6
# Reserved time delays others, used time is what is charged; each request waits in the queue.
COST = CostModel(alpha=0.95, beta=1.0, gamma=60.0)


def walltime_ladders(
    first_s: Sequence[float],
    median_s: Sequence[float],
    upper_s: Sequence[float],
    confidence: float,
    step_s: float = 1.0,
    growth: float | Sequence[float] = LEAST_GROWTH,
) -> list[tuple[float, ...]]:
    """Return the times that each of n tasks requests, increasing.

    Parameters
    ----------
    first_s : sequence of float, shape (n,)
        The first request, in seconds.
    median_s, upper_s : sequence of float, shape (n,)
        Predicted runtime and its upper bound at ``confidence``.
    step_s : float
        Later requests are rounded up to multiples of this.
    growth : float or sequence of float, shape (n,)
        Each request is at least so many times the one before.
    """
    if not len(first_s):
        return []
    spread = np.log(np.maximum(np.asarray(upper_s, float) / np.asarray(median_s, float), 1.001))
    residuals = PredictedLaw.of((1 - confidence, 0.5, confidence), (1 / math.e, 1.0, math.e))
    sequences = requests_per_image(residuals, COST, np.asarray(median_s, float), spread, spread)
    return [
        rungs(first, row[np.isfinite(row)].tolist(), step_s, float(least))
        for first, row, least in zip(
            first_s, sequences.requests, np.broadcast_to(growth, len(first_s)), strict=True
        )
    ]


def rungs(
    first: float, later: Sequence[float], step: float, growth: float = LEAST_GROWTH
) -> tuple[float, ...]:
    """Return the first request and the later ones that are clearly longer.

    Examples
    --------
    >>> rungs(60.0, [50.0, 65.0, 95.0, 100.0], 60.0)
    (60.0, 120.0)
    """
    ladder = [float(first)]
    for value in later:
        rung = float(stepped(value, step))
        if rung >= growth * ladder[-1] and len(ladder) < MOST_RUNGS:
            ladder.append(rung)
    return tuple(ladder)
