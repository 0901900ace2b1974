"""Savings by other requests: computed from earlier jobs of an application, made for later ones.

At each of several moments, sequences of requests are computed from the jobs that had ended by
then, and made for the jobs submitted between that moment and the next. No request of a job
depends on that job, or on a job that ended after its submission.

What jobs cost on a cluster, by its prices and its rules of billing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.replay import (
    POPULATION_RUNS,
    PlannedRequests,
    population_requests,
    ratio_interval,
    replay,
)
from voxcast.allocation.site import BYTES_PER_GB, SECONDS_PER_HOUR, stepped
from voxcast.audit.groups import core_hours, requested_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.site import Cluster

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_ROOM = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class JobPrices:
    """Prices of jobs, on the node type that each ran on.

    A job of several nodes is billed as that many jobs of one node, each with an equal share.

    Attributes
    ----------
    node : ndarray of int, shape (n,)
        Position of the node type in the cluster's; -1 for a job whose partition or size the
        cluster does not have, which has no price.
    cpus, gpus, nodes : ndarray of float, shape (n,)
    """

    cluster: Cluster
    node: NDArray[np.int64]
    cpus: Floats
    gpus: Floats
    nodes: Floats

    @classmethod
    def of(cls, jobs: pd.DataFrame, cluster: Cluster) -> JobPrices:
        """Return the prices of jobs, each on the smallest node type of its partition that fits."""
        nodes = np.maximum(jobs["nodes"].to_numpy(), 1.0)
        cpus, gpus = (np.ceil(jobs[name].to_numpy() / nodes) for name in ("cpus", "gpus"))
        memory = np.nan_to_num(jobs["mem_limit_bytes"].to_numpy()) / nodes
        # Where a site has one partition, exports may leave it out.
        not_stated = (jobs["partition"] == "").to_numpy() & (len(cluster.partitions) == 1)
        chosen = np.full(len(jobs), -1)
        sizes = [(node.gpus, node.cores, node.memory_bytes) for node in cluster.node_types]
        for n in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            node = cluster.node_types[n]
            fits = (jobs["partition"] == node.partition).to_numpy() | not_stated
            fits &= (cpus <= node.cores) & (gpus <= node.gpus)
            chosen[fits & (memory <= node.memory_bytes * _ROOM)] = n
        return cls(cluster, chosen, cpus, gpus, nodes)

    @property
    def priced(self) -> NDArray[np.bool_]:
        """Which jobs have a price."""
        return self.node >= 0

    def usd(self, memory_bytes: Floats, used_s: Floats, requested_s: Floats) -> Floats:
        """Return the cost of one attempt of each job in US dollars; NaN without a price.

        Parameters
        ----------
        memory_bytes : ndarray, shape (n,)
            Requested memory of the whole job; NaN where it is not stated.
        used_s, requested_s : ndarray, shape (n,)
            Time used and requested; which of them is charged depends on the node type.
        """
        cost = np.full(len(self.node), np.nan)
        share = np.nan_to_num(memory_bytes) / self.nodes
        requested = np.where(np.isnan(requested_s), used_s, requested_s)
        sizes = pd.DataFrame({"node": self.node, "cpus": self.cpus, "gpus": self.gpus})
        for size, same in sizes[self.priced].groupby(list(sizes)).groups.items():
            n, cpus, gpus = np.array(size, dtype=int)
            node = self.cluster.node_types[n]
            seconds = (requested if node.charged == "requested" else used_s)[same]
            each = self.cluster.billing.usd(node, cpus, gpus, share[same], seconds)
            cost[same] = each * self.nodes[same]
        return cost


ASSUMPTIONS = (
    "a killed job is repeated from its start, and takes as long and as much memory again",
    "a job killed for its memory had run to its end, which overstates the loss",
    "kills for time and for memory are independent, and each is counted in full",
    "judged on completed jobs that are not short, since the needs of killed jobs are unknown",
    "requests are learned as if killed jobs had needed just their limit; they needed more",
    "queue waiting is not counted; shorter requests usually start sooner",
)
MOMENTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the jobs of an application, by their ends
MAX_LEARNED_JOBS = 5000  # more would not change the distribution
BYTES_PER_CORE = 4e9  # memory worth one core if the cluster is not described
MIN_RESAMPLED_GROUPS = 5


@dataclass(frozen=True)
class Objective:
    """Costs and rounding of requests.

    Attributes
    ----------
    time : CostModel
        Of requested and used time.
    bytes_per_core : float
        Memory worth one core: a job killed for its memory has lost its cores too.
    time_step_s, memory_step_bytes, memory_floor_bytes : float
        Requests are rounded up to these steps, and to at least this memory.
    """

    time: CostModel = field(default_factory=lambda: CostModel(1.0, 1.0))
    bytes_per_core: float = BYTES_PER_CORE
    time_step_s: float = 60.0
    memory_step_bytes: float = 2.0**20
    memory_floor_bytes: float = 2.0**25


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums; `low` and `high` are None if there are too few groups for an interval."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Saving:
    """One resource of the judged jobs, as requested and by the computed sequences.

    Attributes
    ----------
    requested, proposed : float
        Requested core-hours or GB-hours, all attempts included.
    ratio : Ratio
        Proposed over requested.
    killed : int
        Jobs that would have been killed at least once.
    lost_core_hours : float
        Core-hours of the attempts that would have been killed.
    """

    judged_jobs: int
    requested: float
    proposed: float
    ratio: Ratio
    killed: int
    lost_core_hours: float


@dataclass(frozen=True)
class ResourceAdvice:
    """Requests of time or memory for the next jobs.

    Attributes
    ----------
    requests : tuple of float
        First request and those after a kill; empty if unknown.
    judged_jobs, killed : int
        Later jobs that were judged, and how many a first request that was learned in the same way
        from earlier jobs would have killed.
    stopped : int
        Jobs that were killed at their limit: they needed more, how much is unknown.
    """

    requests: tuple[float, ...]
    judged_jobs: int
    killed: int
    stopped: int


@dataclass(frozen=True)
class Advice:
    """Requests for the next jobs on one node with one number of CPUs, learned from all so far.

    Attributes
    ----------
    jobs : int
        Jobs with this number of CPUs, on one node, for which the advice holds.
    """

    cpus: int
    jobs: int
    time: ResourceAdvice
    memory: ResourceAdvice


@dataclass(frozen=True)
class AppSavings:
    """Savings of one application.

    Attributes
    ----------
    advice : tuple of Advice
        For each number of CPUs with enough jobs.
    not_covered : int
        Jobs with another number of CPUs, or on several nodes, without advice.
    avoidable_jobs : int
        Later jobs that were killed at their time limit or for memory, and had requested less than
        the computed first request.
    avoidable_core_hours : float
        Core-hours of these jobs.
    """

    app: str
    core_hours: float
    time: Saving | None
    memory: Saving | None
    advice: tuple[Advice, ...]
    not_covered: int
    avoidable_jobs: int
    avoidable_core_hours: float


@dataclass(frozen=True, eq=False)
class _Resource:
    """Time or memory of the jobs of an application; arrays of shape (n,)."""

    needed: Floats
    requested: Floats
    unit: float  # of `needed` in which requests are computed
    cost: CostModel
    judgeable: Mask
    learnable: Mask
    killed: Mask
    step: float
    floor: float


@dataclass(frozen=True, eq=False)
class _Replayed:
    """Outcome of the computed requests; arrays of shape (n,), NaN before the first moment."""

    evaluated: Mask
    alike: Mask  # judged by a request that was learned from jobs with as many CPUs
    first: Floats
    kills: Floats
    attempted: Floats  # sum of all requests
    wasted: Floats  # used in killed attempts


class AppJobs:
    """The jobs of an application as arrays, and the moments at which requests are computed."""

    def __init__(self, jobs: pd.DataFrame, objective: Objective) -> None:
        self.runtime_s, self.cpus = jobs["runtime_s"].to_numpy(), jobs["cpus"].to_numpy()
        self.on_one_node = ~(jobs["nodes"].to_numpy() > 1)
        self.limit_s, self.requested_bytes = jobs["limit_s"].to_numpy(), requested_memory(jobs)
        self.end_s, start = jobs["end_s"].to_numpy(), jobs["start_s"].to_numpy()
        submit = jobs["submit_s"].to_numpy()
        self.submit_s = np.where(np.isnan(submit), start, submit)
        outcome, long = jobs["outcome"].to_numpy(dtype=object), jobs["long"].to_numpy()
        completed = (outcome == "completed") & long & (self.cpus > 0)
        timed_out, out_of_memory = (outcome == "timeout") & long, outcome == "out_of_memory"
        self.learnable = completed | (timed_out & (self.cpus > 0))
        ends = self.end_s[self.learnable & np.isfinite(self.end_s)]
        dated = len(ends) and np.isfinite(self.submit_s[self.learnable]).any()
        self.moments = np.quantile(ends, MOMENTS) if dated else np.array([])
        self.core_hours = core_hours(jobs)
        self.submitted_together = _submitted_together(jobs, self.submit_s)
        self.time = _Resource(
            self.runtime_s, self.limit_s, 1.0, objective.time, completed & (self.limit_s > 0),
            self.learnable, timed_out, objective.time_step_s, 0.0,
        )  # fmt: skip
        peak, requested = jobs["peak_rss_bytes"].to_numpy(), self.requested_bytes
        has_peak = completed & (peak > 0)
        killed = out_of_memory & (requested > 0) & (self.cpus > 0)
        cores = float(np.median(self.cpus[has_peak])) if has_peak.any() else 1.0
        self.memory = _Resource(
            np.where(killed, np.fmax(requested, peak), peak), requested, BYTES_PER_GB,
            CostModel(1.0, 0.0, cores * objective.bytes_per_core / BYTES_PER_GB),
            has_peak & (requested > 0), has_peak | killed, out_of_memory,
            objective.memory_step_bytes, objective.memory_floor_bytes,
        )  # fmt: skip

    def planned(self, resource: _Resource, training: Mask, cpus: Floats) -> PlannedRequests:
        """Return the optimal sequences for runs on `cpus` after the newest training jobs."""
        places = np.flatnonzero(training)
        if len(places) > MAX_LEARNED_JOBS:
            newest = np.argsort(self.end_s[places], kind="stable")[-MAX_LEARNED_JOBS:]
            places = np.sort(places[newest])
        plan = population_requests(
            resource.needed[places] / resource.unit, self.cpus[places], cpus, resource.cost
        )
        rows = np.maximum(stepped(plan.requests_s * resource.unit, resource.step), resource.floor)
        # Requests that are equal after rounding are made once.
        distinct, row_of = np.unique(rows, axis=0, return_inverse=True)
        requests = np.full(distinct.shape, np.nan)
        for row, sequence in zip(requests, distinct, strict=True):
            values = np.unique(sequence[np.isfinite(sequence)])
            row[: len(values)] = values
        return PlannedRequests(requests[row_of.reshape(-1)], plan.growth)

    def replayed(self, resource: _Resource) -> _Replayed | None:
        """Make the computed requests for later jobs; None if no job can be judged."""
        n = len(self.cpus)
        evaluated, alike = np.zeros((2, n), dtype=bool)
        result = _Replayed(evaluated, alike, *(np.full(n, np.nan) for _ in range(4)))
        for begin, end in pairwise([*self.moments, np.inf]):
            training = resource.learnable & (self.end_s <= begin)
            later = (self.submit_s >= begin) & (self.submit_s < end) & (self.cpus > 0)
            if training.sum() < POPULATION_RUNS or not later.any():
                continue
            planned = self.planned(resource, training, self.cpus[later])
            used = np.where(resource.judgeable, resource.needed, 1.0)[later]
            outcome = replay(planned, used, CostModel(1.0))
            result.first[later] = planned.requests_s[:, 0]
            result.kills[later] = outcome.attempts - 1
            result.attempted[later] = outcome.cost
            result.wasted[later] = outcome.busy_s - used
            evaluated |= later & resource.judgeable
            counts, numbers = np.unique(self.cpus[training], return_counts=True)
            alike |= later & np.isin(self.cpus, counts[numbers >= POPULATION_RUNS])
        return result if evaluated.any() else None


def savings_of(jobs: pd.DataFrame, app: str, objective: Objective) -> AppSavings | None:
    """Return the savings of one application.

    Parameters
    ----------
    jobs : DataFrame
        Its jobs, without interactive ones.

    Returns
    -------
    AppSavings or None
        None if there are too few jobs, or their order in time is unknown.
    """
    app_jobs = AppJobs(jobs, objective)
    if app_jobs.learnable.sum() < 2 * POPULATION_RUNS or not len(app_jobs.moments):
        return None
    time, memory = app_jobs.replayed(app_jobs.time), app_jobs.replayed(app_jobs.memory)
    if time is None and memory is None:
        return None
    avoidable = np.zeros(len(jobs), dtype=bool)
    for resource, replayed in ((app_jobs.time, time), (app_jobs.memory, memory)):
        if replayed is not None:
            avoidable |= resource.killed & (replayed.first > resource.requested)
    gb_hours = app_jobs.runtime_s / SECONDS_PER_HOUR / BYTES_PER_GB
    cpu_hours = app_jobs.cpus / SECONDS_PER_HOUR
    advice = _advice(app_jobs, time, memory)
    is_covered = app_jobs.on_one_node & np.isin(app_jobs.cpus, [entry.cpus for entry in advice])
    return AppSavings(
        app,
        float(app_jobs.core_hours.sum()),
        None if time is None else _saving(app_jobs, time, app_jobs.limit_s, cpu_hours,
                                          time.wasted * cpu_hours),
        None if memory is None else _saving(app_jobs, memory, app_jobs.requested_bytes, gb_hours,
                                            memory.kills * app_jobs.core_hours),
        advice,
        int((~is_covered).sum()),
        int(avoidable.sum()),
        float(app_jobs.core_hours[avoidable].sum()),
    )  # fmt: skip


def ratio_of(numerator: Floats, denominator: Floats, groups: NDArray[np.int64]) -> Ratio:
    """Return the ratio of the sums, with a 95 % bootstrap interval over groups of jobs.

    Examples
    --------
    >>> ratio_of(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0, 1])).value
    0.5
    """
    value = float(numerator.sum() / denominator.sum())
    if len(np.unique(groups)) < MIN_RESAMPLED_GROUPS:
        return Ratio(value, None, None)
    return Ratio(value, *ratio_interval(numerator, denominator, groups))


def _submitted_together(jobs: pd.DataFrame, submit_s: Floats) -> NDArray[np.int64]:
    """Return a number for each array job, and for each day of a user's other jobs."""
    array_job = jobs["job_id"].astype(str).str.extract(r"^(\d+)[_\[]", expand=False)
    day = pd.Series(np.nan_to_num(submit_s) // 86_400, jobs.index).astype("int64")
    by_day = jobs["user"].cat.codes.astype(str) + "/" + day.astype(str)
    codes: NDArray[np.int64] = pd.factorize(array_job.fillna(by_day))[0]
    return codes


def _saving(
    jobs: AppJobs, replayed: _Replayed, requested: Floats, scale: Floats, lost_core_hours: Floats
) -> Saving:
    mask = replayed.evaluated
    before, after = (requested * scale)[mask], (replayed.attempted * scale)[mask]
    return Saving(
        int(mask.sum()), float(before.sum()), float(after.sum()),
        ratio_of(after, before, jobs.submitted_together[mask]),
        int((replayed.kills[mask] > 0).sum()), float(lost_core_hours[mask].sum()),
    )  # fmt: skip


def _advice(jobs: AppJobs, time: _Replayed | None, memory: _Replayed | None) -> tuple[Advice, ...]:
    counts, numbers = np.unique(jobs.cpus[jobs.learnable & jobs.on_one_node], return_counts=True)
    advice = []
    for cpus in counts[numbers >= POPULATION_RUNS]:
        same = (jobs.cpus == cpus) & jobs.on_one_node
        advice.append(
            Advice(
                int(cpus), int((same & jobs.learnable).sum()),
                _resource_advice(jobs, jobs.time, time, same, cpus),
                _resource_advice(jobs, jobs.memory, memory, same, cpus),
            )
        )  # fmt: skip
    return tuple(sorted(advice, key=lambda entry: -entry.jobs))


def _resource_advice(
    jobs: AppJobs, resource: _Resource, replayed: _Replayed | None, same: Mask, cpus: float
) -> ResourceAdvice:
    training = resource.learnable & same
    stopped = int((training & resource.killed).sum())
    if replayed is None or training.sum() < POPULATION_RUNS:
        return ResourceAdvice((), 0, 0, stopped)
    now = jobs.planned(resource, training, np.array([cpus])).requests_s[0]
    mask = same & replayed.evaluated & replayed.alike
    kills = int((replayed.kills[mask] > 0).sum())
    return ResourceAdvice(tuple(now[np.isfinite(now)].tolist()), int(mask.sum()), kills, stopped)
