"""Equally spaced sequences, with a checkpoint after each request but the last, or none.

They are the baselines of the dynamic programmes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.discretisation import end_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

MOST_PERIODS = 1000


def periodic(
    law: Law, periods: int, *, checkpoints: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return milestones and checkpoints of a sequence that divides the support equally."""
    t = np.unique(np.linspace(law.support[0], end_of(law), periods + 1)[1:])
    return t, (np.arange(len(t)) < len(t) - 1) & checkpoints


def best_periods(
    law: Law, cost: CostModel, *, checkpoints: bool, max_periods: int = MOST_PERIODS
) -> int:
    """Return the number of periods, up to ``most``, whose sequence is cheapest."""
    costs = [
        cost.expected(law, *periodic(law, periods, checkpoints=checkpoints))
        for periods in range(1, max_periods + 1)
    ]
    return 1 + int(np.argmin(costs))
