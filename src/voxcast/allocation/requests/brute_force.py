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

    from voxcast.laws.law import Law

CANDIDATES = 5000
MOST = 1000


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
    both = cost.alpha + cost.beta
    return (
        mean + 1 + both / (2 * cost.alpha) * (square - low**2)
        + (both + cost.gamma) / cost.alpha * (mean - low)
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
    first = low + (largest_first(law, cost) - low) * np.arange(1, candidates + 1) / candidates
    paid = cost.alpha * first + cost.gamma
    alive = np.arange(candidates)
    before, now, reached = np.ones(candidates), first, law.sf(first)
    steps = [first]
    best, best_at, length = math.inf, -1, 0
    for _ in range(MOST):
        complete = reached <= EPSILON
        if complete.any():
            cheapest = int(alive[complete][np.argmin(paid[alive[complete]])])
            if paid[cheapest] < best:
                best, best_at, length = float(paid[cheapest]), cheapest, len(steps)
        # A sequence that costs more than the best one so far cannot become the best.
        active = ~complete & (paid[alive] < best)
        alive, before, now, reached = (a[active] for a in (alive, before, now, reached))
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
        raise ConfigError(
            f"no sequence of {candidates} first requests keeps increasing", "brute_force"
        )
    return np.array([step[best_at] for step in steps[:length]])
