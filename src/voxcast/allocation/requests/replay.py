"""What a way of asking would have cost on runs whose outcome is known.

A run that is asked too little for is killed at its limit, and made again with the next request.
Runs are taken to last as long again, as the papers on request sequences take them to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.pricing import BYTES_PER_GB, SECONDS_PER_HOUR
from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.waiting import Waiting
from voxcast.errors import ConfigError
from voxcast.laws.predicted import PredictedLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

LAST_RUNS = 5  # whose mean the laboratory's rule asks for
MASI_GROWTH = 1.5
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class PlannedRequests:
    """The requests of a way of asking, for each of n runs.

    Attributes
    ----------
    requests_s : ndarray, shape (n, k)
        Rising, with NaN after the last.
    growth : float
        What the last is multiplied by, again and again, where it was not enough.
    """

    requests_s: NDArray[np.float64]
    growth: float = 2.0


@dataclass(frozen=True, eq=False)
class ReplayedRuns:
    """What became of each run; arrays of shape (n,).

    Attributes
    ----------
    cost : ndarray
        By the cost model, all attempts together.
    omniscient : ndarray
        The cost of asking for just what was used.
    attempts : ndarray of int
    busy_s : ndarray
        Seconds in use, killed attempts included.
    turnaround_s : ndarray
        Seconds of waiting and running, all attempts together.
    """

    cost: NDArray[np.float64]
    omniscient: NDArray[np.float64]
    attempts: NDArray[np.int64]
    busy_s: NDArray[np.float64]
    turnaround_s: NDArray[np.float64]


def replay(
    plan: PlannedRequests, runtime_s: ArrayLike, cost: CostModel, waiting: Waiting | None = None
) -> ReplayedRuns:
    """Ask as planned for runs that took ``runtime_s``, shape (n,).

    Examples
    --------
    >>> found = replay(PlannedRequests(np.array([[10.0, 20.0]])), [50.0], CostModel())
    >>> found.attempts.tolist(), found.cost.tolist(), found.busy_s.tolist()
    ([4], [150.0], [120.0])
    """
    used = np.asarray(runtime_s, dtype=np.float64)
    n = len(used)
    queue = waiting or Waiting()
    spent, busy, waited = np.zeros(n), np.zeros(n), np.zeros(n)
    attempts = np.zeros(n, dtype=np.int64)
    request = np.zeros(n)
    going = np.ones(n, dtype=bool)
    column = 0
    while going.any():
        planned = np.full(n, np.nan)
        if column < plan.requests_s.shape[1]:
            planned = plan.requests_s[:, column]
        request = np.where(np.isfinite(planned), planned, request * plan.growth)
        if not (request[going] > 0).all():
            raise ConfigError("a request must be above 0", "the plan")
        taken = np.minimum(request, used)
        price = cost.alpha * request + cost.beta * taken + cost.gamma
        spent[going] += price[going]
        busy[going] += taken[going]
        waited[going] += queue.of(request[going])
        attempts[going] += 1
        going &= request < used
        column += 1
    omniscient = (cost.alpha + cost.beta) * used + cost.gamma
    return ReplayedRuns(spent, omniscient, attempts, busy, waited + busy)


def population_law(seen_s: ArrayLike) -> PredictedLaw:
    """Return the law of what was seen, whatever the image."""
    logs = np.log(np.asarray(seen_s, dtype=np.float64))
    middle = float(np.median(logs))
    return PredictedLaw.of_residuals(logs - middle).scaled(np.exp(middle))


def planned_requests(
    seen_s: ArrayLike,
    median_s: ArrayLike,
    residuals: PredictedLaw,
    runtime_s: ArrayLike,
    cost: CostModel,
    *,
    down: ArrayLike = 1.0,
    up: ArrayLike = 1.0,
    site_default_s: float,
) -> dict[str, PlannedRequests]:
    """Return every way of asking.

    Parameters
    ----------
    seen_s : array_like, shape (m,)
        Walltimes to learn from, oldest first.
    median_s, down, up : array_like, shape (n,)
        What is predicted of each run: median, and spread below and above it.
    residuals : PredictedLaw
        Of measured over predicted walltime, from subjects that the predictor had not seen.
    runtime_s : array_like, shape (n,)
        What the runs took, for the clairvoyant alone.
    site_default_s : float
        What a user asks for who leaves it to the site.

    Returns
    -------
    dict of str to PlannedRequests
        ``site_default``, ``laboratory`` (mean of the last runs, times 1.5 after each failure),
        ``harp_doubling`` (predicted walltime, doubled after each failure), ``population`` (the
        optimal sequence for the law of what was seen), ``per_image`` (that for the law of each
        image) and ``clairvoyant``.
    """
    if not site_default_s > 0:
        raise ConfigError("must be above 0", "the site's default")
    seen, middle = np.asarray(seen_s, dtype=np.float64), np.asarray(median_s, dtype=np.float64)
    n = len(middle)
    whole = population_law(seen)
    center = float(whole.quantile(0.5))
    one = requests_per_image(whole.scaled(1.0 / center), cost, [center])
    each = requests_per_image(residuals, cost, middle, down, up)
    return {
        "site_default": PlannedRequests(np.full((n, 1), site_default_s)),
        "laboratory": PlannedRequests(np.full((n, 1), seen[-LAST_RUNS:].mean()), MASI_GROWTH),
        "harp_doubling": PlannedRequests(middle[:, None]),
        "population": PlannedRequests(np.repeat(one.requests, n, axis=0)),
        "per_image": PlannedRequests(each.requests),
        "clairvoyant": PlannedRequests(np.asarray(runtime_s, dtype=np.float64)[:, None]),
    }


@dataclass(frozen=True)
class Account:
    """What became of all runs together.

    Attributes
    ----------
    normalised_cost : float
        Cost over that of who knows each length beforehand.
    normalised_cost_interval : tuple of float
        Its 95 % interval over subjects, drawn again with replacement.
    failures : int
        Attempts that were killed.
    waste_core_h : float
        Core-hours of killed attempts.
    short_of_memory : int
        Runs that used more memory than was asked for; they count with their walltime alone.
    waste_gb_h : float
        Memory asked for and not used, over the time in use; GB of 10^9 bytes.
    turnaround_s : float
        Mean of waiting and running, all attempts.
    """

    runs: int
    cost: float
    normalised_cost: float
    normalised_cost_interval: tuple[float, float]
    attempts: int
    failures: int
    short_of_memory: int
    waste_core_h: float
    waste_gb_h: float
    turnaround_s: float


def account(
    replayed: ReplayedRuns,
    runtime_s: ArrayLike,
    cpus: ArrayLike,
    asked_bytes: ArrayLike,
    used_bytes: ArrayLike,
    subjects: Sequence[str],
    seed: int = 0,
) -> Account:
    """Sum up what became of runs.

    Parameters
    ----------
    cpus, asked_bytes, used_bytes : array_like, shape (n,)
        Of each run.
    subjects : sequence of str, shape (n,)
        Whose runs are drawn together.
    """
    used = np.asarray(runtime_s, dtype=np.float64)
    cores = np.asarray(cpus, dtype=np.float64)
    asked, peak = (np.asarray(a, dtype=np.float64) for a in (asked_bytes, used_bytes))
    idle = np.maximum(asked * replayed.busy_s - peak * used, 0.0)
    return Account(
        len(used),
        float(replayed.cost.sum()),
        float(replayed.cost.sum() / replayed.omniscient.sum()),
        _ratio_interval(replayed.cost, replayed.omniscient, subjects, seed),
        int(replayed.attempts.sum()),
        int((replayed.attempts - 1).sum()),
        int(np.count_nonzero(np.broadcast_to(peak > asked, used.shape))),
        float(((replayed.busy_s - used) * cores).sum() / SECONDS_PER_HOUR),
        float(idle.sum() / SECONDS_PER_HOUR / BYTES_PER_GB),
        float(replayed.turnaround_s.mean()),
    )


def _ratio_interval(
    top: NDArray[np.float64], bottom: NDArray[np.float64], subjects: Sequence[str], seed: int
) -> tuple[float, float]:
    _, of = np.unique(np.asarray(subjects), return_inverse=True)
    count = int(of.max()) + 1
    over, under = np.bincount(of, top, count), np.bincount(of, bottom, count)
    drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    ratios = over[drawn].sum(axis=1) / under[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
