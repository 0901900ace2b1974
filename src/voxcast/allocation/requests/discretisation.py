"""Discretisation of a law to the amounts from which a dynamic programme chooses requests.

A law with infinite support is truncated where one job in ten million is longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost_model import CostModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

EPSILON = 1e-7
POINTS = 1000


@dataclass(frozen=True)
class RequestGrid:
    """Amounts that can be requested, and the probability that more is needed.

    Attributes
    ----------
    points : ndarray, shape (n,)
        Increasing; the last suffices under the truncated law.
    survival : ndarray, shape (n,)
        Probability of more than each, under the truncated law; the last is 0.
    """

    points: NDArray[np.float64]
    survival: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean of the discretised law."""
        return float(-np.diff(self.survival, prepend=1.0) @ self.points)


def end_of(law: Law, epsilon: float = EPSILON) -> float:
    """Return the end of the support, or the 1 - ``epsilon`` quantile if it is infinite."""
    high = law.support[1]
    return high if math.isfinite(high) else float(law.quantile(1 - epsilon))


def equal_time(law: Law, points: int = POINTS, epsilon: float = EPSILON) -> RequestGrid:
    """Return equally spaced amounts, from the start of the support to its end.

    A discrete law is discretised by `equal_probability`, as requests between its amounts have no
    benefit.
    """
    if not law.continuous:
        return equal_probability(law, points, epsilon)
    return grid_of(law, np.linspace(law.support[0], end_of(law, epsilon), points + 1)[1:])


def equal_probability(law: Law, points: int = POINTS, epsilon: float = EPSILON) -> RequestGrid:
    """Return the distinct quantiles at equally spaced probabilities, up to the end."""
    end = end_of(law, epsilon)
    probabilities = float(law.cdf(end)) * np.arange(1, points + 1) / points
    return grid_of(law, np.append(law.quantile(probabilities[:-1]), end))


def grid_of(law: Law, amounts: NDArray[np.float64]) -> RequestGrid:
    """Return the grid of ``amounts``, for the law truncated at the largest of them."""
    amounts = np.unique(amounts)
    truncated = float(law.sf(amounts[-1]))
    survival = (law.sf(amounts) - truncated) / (1 - truncated)
    survival[-1] = 0.0  # exactly, regardless of rounding
    return RequestGrid(amounts, survival)


DISCRETISATIONS: dict[str, Callable[..., RequestGrid]] = {
    "equal_time": equal_time,
    "equal_probability": equal_probability,
}


def points_for(law: Law, cost: CostModel, accuracy: float = 0.1) -> float:
    """Return the number of equal steps that guarantees a cost within ``accuracy`` of the optimum.

    With checkpoints (Gainaru et al., IPDPS 2020, theorem on Dyn-Prog-Count). It is infinite where
    neither checkpoints nor requests have a price.
    """
    low = law.support[0]
    finest = min(max(low, accuracy * law.mean / 3), cost.checkpoint, cost.restart)
    by_length = 1 / finest if finest else math.inf
    by_price = (cost.alpha + cost.beta) / cost.gamma if cost.gamma else math.inf
    points = 3 * (end_of(law) - low) * min(by_length, by_price) / accuracy
    return float(math.ceil(points)) if math.isfinite(points) else points
