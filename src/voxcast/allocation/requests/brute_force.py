"""The optimal sequence by its recurrence, from many first requests at once.

Given the first request of an optimal sequence, the density gives all others (Aupy et al., IPDPS
2019, theorem 3 and proposition 1); what is tried is the first. The recurrence magnifies errors:
of most first requests the sequence stops rising, and those are dropped. It goes on until one job
in ten million is longer.
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

    from voxcast.laws.law import Law

CANDIDATES = 5000
MOST = 1000


def largest_first(law: Law, cost: CostModel) -> float:
    """Return a bound on the first request of an optimal sequence (theorem 2).

    Raises
    ------
    ConfigError
        If the variance is infinite, where there is no such bound.
    """
    low, high = law.support
    if math.isfinite(high):
        return high
    mean, square = law.mean, law.sd**2 + law.mean**2
    if not math.isfinite(square):
        raise ConfigError("needs a finite variance", "brute_force")
    both = cost.alpha + cost.beta
    return (
        mean + 1 + both / (2 * cost.alpha) * (square - low**2)
        + (both + cost.gamma) / cost.alpha * (mean - low)
    )  # fmt: skip


def brute_force(law: Law, cost: CostModel, candidates: int = CANDIDATES) -> NDArray[np.float64]:
    """Return the cheapest of the sequences that the recurrence gives.

    Raises
    ------
    ConfigError
        If the law has no density or an infinite variance, or no candidate's sequence rises.
    """
    if not law.continuous:
        raise ConfigError(
            "needs a law with a density", "brute_force", "fit a family, or use equal_probability"
        )
    low, high = law.support
    first = low + (largest_first(law, cost) - low) * np.arange(1, candidates + 1) / candidates
    paid = cost.alpha * first + cost.gamma
    alive = np.arange(candidates)
    before, now, reached = np.ones(candidates), first, law.sf(first)
    steps = [first]
    best, best_at, length = math.inf, -1, 0
    for _ in range(MOST):
        done = reached <= EPSILON
        if done.any():
            cheapest = int(alive[done][np.argmin(paid[alive[done]])])
            if paid[cheapest] < best:
                best, best_at, length = float(paid[cheapest]), cheapest, len(steps)
        # What has paid more than the best one did cannot become the best.
        go_on = ~done & (paid[alive] < best)
        alive, before, now, reached = (own[go_on] for own in (alive, before, now, reached))
        if not len(alive):
            break
        with np.errstate(all="ignore"):
            density = law.pdf(now)
            after = (
                before / density
                + cost.beta / cost.alpha * (reached / density - now)
                - cost.gamma / cost.alpha
            )
            after = np.minimum(np.where(np.isnan(after), high, after), high)
            rises = (after > now) & np.isfinite(after)
            paid[alive] += (cost.alpha * after + cost.beta * now + cost.gamma) * reached
        alive, before, now = alive[rises], reached[rises], after[rises]
        reached = law.sf(now)
        steps.append(np.full(candidates, np.nan))
        steps[-1][alive] = now
    if best_at < 0:
        raise ConfigError(f"none of {candidates} first requests goes on rising", "brute_force")
    return np.array([step[best_at] for step in steps[:length]])
