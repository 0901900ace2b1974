"""Requests of an application replayed: computed from earlier jobs, made for later ones.

At each of several moments, sequences of requests are computed from the jobs that had ended by
then, and made for the jobs that were submitted from then to the next moment. No job gets requests
that it, or a job that ended after its submission, helped to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from voxcast.allocation.billing import stepped
from voxcast.allocation.pricing import BYTES_PER_GB, SECONDS_PER_HOUR
from voxcast.allocation.requests.cost_model import CostModel
from voxcast.allocation.requests.replay import (
    POPULATION_RUNS,
    PlannedRequests,
    population_requests,
    replay,
)
from voxcast.hpc.audit.groups import requested_memory
from voxcast.hpc.audit.job_prices import core_hours

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOMENTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the jobs of an application, by their ends
MOST_LEARNED = 5000  # a law of more jobs would be the same
BYTES_PER_CORE = 4e9  # memory that is worth a core, where no cluster says


@dataclass(frozen=True)
class Objective:
    """What a request costs when sequences are chosen.

    Attributes
    ----------
    time : CostModel
        Of requested and used time.
    bytes_per_core : float
        Bytes that are worth one core: a job killed for its memory has lost its cores too.
    time_step_s, memory_step_bytes, memory_floor_bytes : float
        Requests are rounded up to these steps, and to at least this memory.
    """

    time: CostModel = field(default_factory=lambda: CostModel(1.0, 1.0))
    bytes_per_core: float = BYTES_PER_CORE
    time_step_s: float = 60.0
    memory_step_bytes: float = 2.0**20
    memory_floor_bytes: float = 2.0**25


@dataclass(frozen=True, eq=False)
class RequestReplay:
    """Requests of one resource replayed; arrays over all jobs of an application.

    ``first`` is the first request of each later job, NaN before the first moment. The others hold
    for the jobs in ``evaluated``: requested amount of all attempts and core-hours lost in killed
    ones, and their number.
    """

    evaluated: NDArray[np.bool_]
    first: Floats
    requested: Floats
    proposed: Floats
    kills: Floats
    lost_core_hours: Floats
    granted: Floats  # the request that sufficed
    next_requests: tuple[float, ...]


class AppJobs:
    """The jobs of an application as arrays, and the moments at which requests are computed."""

    def __init__(self, jobs: pd.DataFrame) -> None:
        self.jobs = jobs
        self.runtime_s, self.cpus = jobs["runtime_s"].to_numpy(), jobs["cpus"].to_numpy()
        self.limit_s = jobs["limit_s"].to_numpy()
        self.asked_bytes = requested_memory(jobs)
        self.peak_bytes = jobs["peak_rss_bytes"].to_numpy()
        self.end_s = jobs["end_s"].to_numpy()
        submit, start = jobs["submit_s"].to_numpy(), jobs["start_s"].to_numpy()
        self.submit_s = np.where(np.isnan(submit), start, submit)
        self.outcome = jobs["outcome"].to_numpy(dtype=object)
        long = jobs["long"].to_numpy()
        self.completed = (self.outcome == "completed") & long
        self.timed_out = (self.outcome == "timeout") & long
        self.learnable = (self.completed | self.timed_out) & (self.cpus > 0)
        ends = self.end_s[self.learnable]
        self.has_times = bool(
            np.isfinite(ends).any() and np.isfinite(self.submit_s[self.learnable]).any()
        )
        self.moments = (
            np.quantile(ends[np.isfinite(ends)], MOMENTS) if self.has_times else np.array([])
        )

    def groups(self) -> NDArray[np.int64]:
        """Return what jobs were submitted together: an array, or a user's day."""
        array_job = self.jobs["job_id"].str.extract(r"^(\d+)[_\[]", expand=False)
        day = pd.Series(np.nan_to_num(self.submit_s) // 86_400, self.jobs.index).astype("int64")
        by_day = self.jobs["user"].cat.codes.astype(str) + "/" + day.astype(str)
        codes: NDArray[np.int64] = pd.factorize(array_job.fillna(by_day))[0]
        return codes

    def replayed_time(self, objective: Objective) -> RequestReplay | None:
        has_limit = self.completed & (self.limit_s > 0) & (self.cpus > 0)

        def plan(training: NDArray[np.bool_], evaluated: NDArray[np.bool_]) -> PlannedRequests:
            return _rounded(
                population_requests(
                    self.runtime_s[training],
                    self.cpus[training],
                    self.cpus[evaluated],
                    objective.time,
                ),
                objective.time_step_s,
            )

        return self._replayed(plan, self.runtime_s, self.limit_s, has_limit, self.learnable)

    def replayed_memory(self, objective: Objective) -> RequestReplay | None:
        has_peak = self.completed & (self.peak_bytes > 0) & (self.cpus > 0)
        judged_jobs = has_peak & (self.asked_bytes > 0)
        killed = (self.outcome == "out_of_memory") & (self.asked_bytes > 0) & (self.cpus > 0)
        needed = np.where(killed, np.fmax(self.asked_bytes, self.peak_bytes), self.peak_bytes)
        cores = float(np.median(self.cpus[has_peak])) if has_peak.any() else 1.0
        cost = CostModel(1.0, 0.0, cores * objective.bytes_per_core / BYTES_PER_GB)

        def plan(training: NDArray[np.bool_], evaluated: NDArray[np.bool_]) -> PlannedRequests:
            gigabytes = population_requests(
                needed[training] / BYTES_PER_GB, self.cpus[training], self.cpus[evaluated], cost
            )
            in_bytes = PlannedRequests(gigabytes.requests_s * BYTES_PER_GB)
            step, floor = objective.memory_step_bytes, objective.memory_floor_bytes
            return _rounded(in_bytes, step, floor)

        return self._replayed(
            plan, needed, self.asked_bytes, judged_jobs, has_peak | killed, memory=True
        )

    def _replayed(
        self,
        plan: Callable[[NDArray[np.bool_], NDArray[np.bool_]], PlannedRequests],
        needed: Floats,
        requested: Floats,
        judgeable: NDArray[np.bool_],
        learnable: NDArray[np.bool_],
        *,
        memory: bool = False,
    ) -> RequestReplay | None:
        n = len(needed)
        first, proposed, kills, busy, granted = (np.full(n, np.nan) for _ in range(5))
        evaluated = np.zeros(n, dtype=bool)
        bounds = [*self.moments, np.inf]
        for begin, end in pairwise(bounds):
            training = learnable & (self.end_s <= begin)
            later = (self.submit_s >= begin) & (self.submit_s < end) & (self.cpus > 0)
            if training.sum() < POPULATION_RUNS or not later.any():
                continue
            planned = plan(_newest(training, self.end_s), later)
            first[later] = planned.requests_s[:, 0]
            used = np.where(judgeable, needed, 1.0)[later]
            outcome = replay(planned, used, CostModel(1.0))
            proposed[later], kills[later] = outcome.cost, outcome.attempts - 1
            busy[later] = outcome.busy_s - used
            granted[later] = _granted(planned, used)
            evaluated |= later & judgeable
        if not evaluated.any():
            return None
        now = plan(_newest(learnable, self.end_s), _usual(self.cpus, learnable)).requests_s[0]
        hours = core_hours(self.cpus, self.runtime_s)
        if memory:
            gb_hours = self.runtime_s / SECONDS_PER_HOUR / BYTES_PER_GB
            scale, lost = gb_hours, kills * hours
        else:
            scale, lost = self.cpus / SECONDS_PER_HOUR, core_hours(self.cpus, busy)
        sequence = tuple(now[np.isfinite(now)].tolist())
        return RequestReplay(
            evaluated, first, requested * scale, proposed * scale, kills, lost, granted, sequence
        )

    def avoidable(
        self, time: RequestReplay | None, memory: RequestReplay | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which jobs were killed for a request below the first of the sequence."""
        nothing = np.zeros(len(self.cpus), dtype=bool)
        short = nothing if time is None else self.timed_out & (time.first > self.limit_s)
        out = self.outcome == "out_of_memory"
        small = nothing if memory is None else out & (memory.first > self.asked_bytes)
        return short, small


def _rounded(plan: PlannedRequests, step: float, floor: float = 0.0) -> PlannedRequests:
    """Return requests in whole steps; those that are equal then are made once."""
    rows = np.maximum(stepped(plan.requests_s, step), floor)
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    requests = np.full(distinct.shape, np.nan)
    for row, sequence in zip(requests, distinct, strict=True):
        values = np.unique(sequence[np.isfinite(sequence)])
        row[: len(values)] = values
    return PlannedRequests(requests[places.reshape(-1)], plan.growth)


def _granted(plan: PlannedRequests, used: Floats) -> Floats:
    """Return the request that suffices for each job."""
    granted = np.full(len(used), np.nan)
    request = np.zeros(len(used))
    for column in plan.requests_s.T:
        request = np.where(np.isfinite(column), column, request * plan.growth)
        granted = np.where(np.isnan(granted) & (request >= used), request, granted)
    while np.isnan(granted).any():
        request = request * plan.growth
        granted = np.where(np.isnan(granted) & (request >= used), request, granted)
    return granted


def _newest(mask: NDArray[np.bool_], end_s: Floats) -> NDArray[np.bool_]:
    """Return the last jobs to end, of those in a mask."""
    if mask.sum() <= MOST_LEARNED:
        return mask
    places = np.flatnonzero(mask)
    newest = places[np.argsort(end_s[places], kind="stable")[-MOST_LEARNED:]]
    selected = np.zeros(len(mask), dtype=bool)
    selected[newest] = True
    return selected


def _usual(cpus: Floats, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return one job with the most usual number of CPUs."""
    counts = pd.Series(cpus[mask]).value_counts()
    selected = np.zeros(len(cpus), dtype=bool)
    selected[np.flatnonzero(mask & (cpus == counts.index[0]))[0]] = True
    return selected
