"""Replay of request methods on recorded runs: their cost, failures and waste.

A run that exceeds its request is killed at the limit and repeated with the next request. It is
assumed to take the same time again, as in the papers on request sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR, Waiting
from voxcast.errors import ConfigError
from voxcast.laws.predicted import PredictedLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

LAST_RUNS = 5  # the laboratory's rule requests their mean
MASI_GROWTH = 1.5
POPULATION_RUNS = 20  # fewer do not tell the tail of a law
RESAMPLES = 2000
MAX_RESAMPLED_GROUPS = 2000  # more are merged at random, which leaves the interval as it is


@dataclass(frozen=True, eq=False)
class PlannedRequests:
    """The requests of a method for each of n runs.

    Attributes
    ----------
    requests_s : ndarray, shape (n, k)
        Increasing, with NaN after the last.
    growth : float
        Factor of each further request after the last.
    """

    requests_s: NDArray[np.float64]
    growth: float = 2.0


@dataclass(frozen=True, eq=False)
class ReplayedRuns:
    """The outcome of each run; arrays of shape (n,).

    Attributes
    ----------
    cost : ndarray
        Of all attempts together.
    omniscient : ndarray
        Cost of requesting exactly the used time.
    attempts : ndarray of int
    busy_s : ndarray
        Seconds in use, including killed attempts.
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
    """Make the planned requests for runs that took ``runtime_s``, shape (n,).

    Examples
    --------
    >>> outcome = replay(PlannedRequests(np.array([[10.0, 20.0]])), [50.0], CostModel())
    >>> outcome.attempts.tolist(), outcome.cost.tolist(), outcome.busy_s.tolist()
    ([4], [150.0], [120.0])
    """
    used = np.asarray(runtime_s, dtype=np.float64)
    n = len(used)
    queue = waiting or Waiting()
    spent, busy, waited = np.zeros(n), np.zeros(n), np.zeros(n)
    attempts = np.zeros(n, dtype=np.int64)
    request = np.zeros(n)
    unfinished = np.ones(n, dtype=bool)
    column = 0
    while unfinished.any():
        planned = np.full(n, np.nan)
        if column < plan.requests_s.shape[1]:
            planned = plan.requests_s[:, column]
        request = np.where(np.isfinite(planned), planned, request * plan.growth)
        if not (request[unfinished] > 0).all():
            raise ConfigError("must be above 0", "planned requests")
        taken = np.minimum(request, used)
        price = cost.alpha * request + cost.beta * taken + cost.gamma
        spent[unfinished] += price[unfinished]
        busy[unfinished] += taken[unfinished]
        waited[unfinished] += queue.of(request[unfinished])
        attempts[unfinished] += 1
        unfinished &= request < used
        column += 1
    omniscient = (cost.alpha + cost.beta) * used + cost.gamma
    return ReplayedRuns(spent, omniscient, attempts, busy, waited + busy)


def population_law(train_s: ArrayLike) -> PredictedLaw:
    """Return the law of training runs, independent of the image."""
    logs = np.log(np.asarray(train_s, dtype=np.float64))
    median = float(np.median(logs))
    return PredictedLaw.of_residuals(logs - median).scaled(np.exp(median))


def population_requests(
    train_s: ArrayLike, train_cpus: ArrayLike, cpus: ArrayLike, cost: CostModel
) -> PlannedRequests:
    """Return for each run the optimal sequence for the training runs on as many CPUs.

    The CPUs of a job are known when it is submitted, and so to a rule that is blind to the image.
    Where fewer than `POPULATION_RUNS` training runs had as many, the law of all is taken.

    Parameters
    ----------
    train_s, train_cpus : array_like, shape (m,)
        Wall times and CPUs of the training runs.
    cpus : array_like, shape (n,)
        CPUs of the runs to request for.
    """
    train, of_train, of_runs = (
        np.asarray(a, dtype=np.float64) for a in (train_s, train_cpus, cpus)
    )
    sequences: list[NDArray[np.float64]] = []
    counts = np.unique(of_runs)
    for count in counts:
        same = train[of_train == count]
        law = population_law(same if len(same) >= POPULATION_RUNS else train)
        median = float(law.quantile(0.5))
        planned = requests_per_image(law.scaled(1.0 / median), cost, [median])
        sequences.append(planned.requests[0])
    requests = np.full((len(of_runs), max(map(len, sequences))), np.nan)
    for count, sequence in zip(counts, sequences, strict=True):
        requests[of_runs == count, : len(sequence)] = sequence
    return PlannedRequests(requests)


def planned_requests(
    train_s: ArrayLike,
    median_s: ArrayLike,
    sequences_s: ArrayLike,
    runtime_s: ArrayLike,
    cost: CostModel,
    *,
    train_cpus: ArrayLike,
    cpus: ArrayLike,
    site_default_s: float,
) -> dict[str, PlannedRequests]:
    """Return the requests of every method, by name.

    Parameters
    ----------
    train_s : array_like, shape (m,)
        Wall times of the training runs, oldest first.
    median_s : array_like, shape (n,)
        Predicted median of each run.
    sequences_s : array_like, shape (n, k)
        Sequence of each run by its own predicted law, with NaN after the last request.
    runtime_s : array_like, shape (n,)
        Wall times of the runs, used by ``clairvoyant`` only.
    train_cpus, cpus : array_like, shape (m,) and (n,)
        CPUs of the training runs and of the runs, for ``population``.
    site_default_s : float
        Default request of the site.

    Returns
    -------
    dict of str to PlannedRequests
        ``site_default``, ``laboratory`` (mean of the last runs, times 1.5 after each failure),
        ``harp_doubling`` (predicted wall time, doubled after each failure), ``population`` (the
        optimal sequence for the law of the training runs on as many CPUs), ``per_image`` (the
        sequence of each run) and ``clairvoyant`` (the wall time itself).
    """
    train, medians = np.asarray(train_s, dtype=np.float64), np.asarray(median_s, dtype=np.float64)
    n = len(medians)
    return {
        "site_default": PlannedRequests(np.full((n, 1), site_default_s)),
        "laboratory": PlannedRequests(np.full((n, 1), train[-LAST_RUNS:].mean()), MASI_GROWTH),
        "harp_doubling": PlannedRequests(medians[:, None]),
        "population": population_requests(train, train_cpus, cpus, cost),
        "per_image": PlannedRequests(np.asarray(sequences_s, dtype=np.float64)),
        "clairvoyant": PlannedRequests(np.asarray(runtime_s, dtype=np.float64)[:, None]),
    }


@dataclass(frozen=True)
class Account:
    """The outcome of all runs together.

    Attributes
    ----------
    normalised_cost : float
        Cost over the cost of requesting exactly the used time.
    normalised_cost_interval : tuple of float
        Its 95 % bootstrap interval over subjects.
    failures : int
        Number of killed attempts.
    waste_core_h : float
        Core-hours of killed attempts.
    short_of_memory : int
        Runs that used more memory than requested; they count by their wall time alone.
    waste_gb_h : float
        Requested but unused memory, times the time in use; GB of 10^9 bytes.
    turnaround_s : float
        Mean time of waiting and running, over all attempts of a run.
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
    requested_bytes: ArrayLike,
    used_bytes: ArrayLike,
    subjects: Sequence[str],
    seed: int = 0,
) -> Account:
    """Summarise the outcomes of runs.

    Parameters
    ----------
    cpus, requested_bytes, used_bytes : array_like, shape (n,)
        Of each run.
    subjects : sequence of str, shape (n,)
        Runs of one subject are resampled together.
    """
    used = np.asarray(runtime_s, dtype=np.float64)
    cores = np.asarray(cpus, dtype=np.float64)
    requested, peak = (np.asarray(a, dtype=np.float64) for a in (requested_bytes, used_bytes))
    idle = np.maximum(requested * replayed.busy_s - peak * used, 0.0)
    return Account(
        len(used),
        float(replayed.cost.sum()),
        float(replayed.cost.sum() / replayed.omniscient.sum()),
        ratio_interval(replayed.cost, replayed.omniscient, subjects, seed),
        int(replayed.attempts.sum()),
        int((replayed.attempts - 1).sum()),
        int(np.count_nonzero(np.broadcast_to(peak > requested, used.shape))),
        float(((replayed.busy_s - used) * cores).sum() / SECONDS_PER_HOUR),
        float(idle.sum() / SECONDS_PER_HOUR / BYTES_PER_GB),
        float(replayed.turnaround_s.mean()),
    )


def ratio_interval(
    numerator: ArrayLike, denominator: ArrayLike, groups: Sequence[Any] | ArrayLike, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a ratio of sums, over groups of runs."""
    rng = np.random.default_rng(seed)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    count = int(group.max()) + 1
    if count > MAX_RESAMPLED_GROUPS:
        group, count = rng.permutation(count)[group] % MAX_RESAMPLED_GROUPS, MAX_RESAMPLED_GROUPS
    above, below = (np.bincount(group, values, count) for values in (numerator, denominator))
    drawn = rng.integers(count, size=(RESAMPLES, count))
    ratios = above[drawn].sum(axis=1) / below[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
