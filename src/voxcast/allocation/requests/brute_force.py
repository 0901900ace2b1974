"""The optimal sequence by its recurrence, from many first requests at once.

The density and the first request of an optimal sequence determine all others (Aupy et al., IPDPS
2019, theorem 3 and proposition 1), so candidates for the first request are tried. The recurrence
amplifies errors: for most candidates the sequence stops increasing, and they are dropped. A
sequence ends where one job in ten million is longer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.discretisation import EPSILON
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.laws.families import Law

CANDIDATES = 5000
MAX_REQUESTS = 1000


def largest_first(law: Law, cost: CostModel) -> float:
    """Return a bound on the first request of an optimal sequence (theorem 2).

    Raises
    ------
    ConfigError
        If the variance is infinite, as there is no bound then.
    """
    low, high = law.support
    if math.isfinite(high):
        return high
    mean, square = law.mean, law.sd**2 + law.mean**2
    if not math.isfinite(square):
        raise ConfigError("needs a finite variance", "brute_force")
    unit_price = cost.alpha + cost.beta
    return (
        mean + 1 + unit_price / (2 * cost.alpha) * (square - low**2)
        + (unit_price + cost.gamma) / cost.alpha * (mean - low)
    )  # fmt: skip


def brute_force(law: Law, cost: CostModel, candidates: int = CANDIDATES) -> NDArray[np.float64]:
    """Return the cheapest sequence of the recurrence.

    Raises
    ------
    ConfigError
        If the law has no density or an infinite variance, or no sequence keeps increasing.
    """
    if not law.continuous:
        raise ConfigError(
            "needs a law with a density", "brute_force", "fit a family, or use equal_probability"
        )
    low, high = law.support
    first_requests = (
        low + (largest_first(law, cost) - low) * np.arange(1, candidates + 1) / candidates
    )
    paid = cost.alpha * first_requests + cost.gamma
    alive = np.arange(candidates)
    previous_sf, requests, sf = np.ones(candidates), first_requests, law.sf(first_requests)
    steps = [first_requests]
    best, best_index, length = math.inf, -1, 0
    for _ in range(MAX_REQUESTS):
        complete = sf <= EPSILON
        if complete.any():
            cheapest = int(alive[complete][np.argmin(paid[alive[complete]])])
            if paid[cheapest] < best:
                best, best_index, length = float(paid[cheapest]), cheapest, len(steps)
        # A sequence that costs more than the best one so far cannot become the best.
        active = ~complete & (paid[alive] < best)
        alive, previous_sf, requests, sf = (a[active] for a in (alive, previous_sf, requests, sf))
        if not len(alive):
            break
        with np.errstate(all="ignore"):
            density = law.pdf(requests)
            next_requests = (
                previous_sf / density
                + cost.beta / cost.alpha * (sf / density - requests)
                - cost.gamma / cost.alpha
            )
            next_requests = np.minimum(
                np.where(np.isnan(next_requests), high, next_requests), high
            )
            increasing = (next_requests > requests) & np.isfinite(next_requests)
            paid[alive] += (cost.alpha * next_requests + cost.beta * requests + cost.gamma) * sf
        alive, previous_sf, requests = alive[increasing], sf[increasing], next_requests[increasing]
        sf = law.sf(requests)
        steps.append(np.full(candidates, np.nan))
        steps[-1][alive] = requests
    if best_index < 0:
        raise ConfigError(
            f"no sequence of {candidates} first requests keeps increasing", "brute_force"
        )
    return np.array([step[best_index] for step in steps[:length]])
