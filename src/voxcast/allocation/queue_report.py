"""Waiting times, use and waste of a simulated queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.queueing import COMPLETED, OUT_OF_MEMORY

if TYPE_CHECKING:
    from voxcast.allocation.queueing import Schedule
    from voxcast.allocation.workload import Workload

# The bounded stretch counts shorter jobs as ten seconds long.
LEAST_RUNTIME_S = 10.0
_SECONDS_PER_HOUR, _BYTES_PER_GB = 3600.0, 1e9


@dataclass(frozen=True)
class QueueReport:
    """Waiting times and utilisation of a schedule.

    Attributes
    ----------
    jobs, attempts : int
        They differ by what was asked for again.
    killed, killed_for_memory : int
        Attempts that ended at their requested time or for lack of memory; those for memory.
    given_up : int
        Jobs of which no attempt completed.
    mean_wait_s : float
        From submission to start, all attempts of a job together.
    mean_turnaround_s : float
        From the first submission of a job to the end of its last attempt.
    mean_bounded_stretch : float
        Mean of (wait + run) / run, where a run counts as at least 10 s and a stretch as at
        least 1. Of a job with several attempts, the run is the last.
    utilisation, useful_utilisation : float
        Share of processor time in use between the first submission and the last end, with and
        without killed attempts.
    asked_core_h, held_core_h, lost_core_h : float
        Processors times requested time; times the time they ran; the latter of killed attempts.
    asked_gb_h, held_gb_h : float
        Requested memory times requested time, and times the time they ran.
    """

    jobs: int
    attempts: int
    killed: int
    killed_for_memory: int
    given_up: int
    mean_wait_s: float
    mean_turnaround_s: float
    mean_bounded_stretch: float
    utilisation: float
    useful_utilisation: float
    makespan_s: float
    asked_core_h: float
    held_core_h: float
    lost_core_h: float
    asked_gb_h: float
    held_gb_h: float


def report(workload: Workload, schedule: Schedule, processors: int) -> QueueReport:
    """Summarise a schedule of a workload."""
    jobs, job = len(workload), schedule.job
    ran_s = schedule.end_s - schedule.start_s
    wait_s = np.bincount(job, schedule.start_s - schedule.submit_s, jobs)
    last = np.zeros(jobs, dtype=np.int64)
    last[job] = np.arange(len(job))  # attempts of a job are in order
    turnaround_s = schedule.end_s[last] - workload.submit_s
    stretch = np.maximum(turnaround_s / np.maximum(ran_s[last], LEAST_RUNTIME_S), 1.0)
    makespan_s = float(schedule.end_s.max() - workload.submit_s.min())
    wide = workload.processors[job]
    core_h = wide * ran_s / _SECONDS_PER_HOUR
    asked_h = wide * schedule.requested_s / _SECONDS_PER_HOUR
    gigabytes = schedule.requested_bytes / _BYTES_PER_GB
    killed = schedule.killed
    # If all jobs last 0 s, nothing is in use.
    capacity_h = processors * makespan_s / _SECONDS_PER_HOUR or 1.0
    return QueueReport(
        jobs=jobs,
        attempts=len(job),
        killed=int(killed.sum()),
        killed_for_memory=int((schedule.outcome == OUT_OF_MEMORY).sum()),
        given_up=int((schedule.outcome[last] != COMPLETED).sum()),
        mean_wait_s=float(wait_s.mean()),
        mean_turnaround_s=float(turnaround_s.mean()),
        mean_bounded_stretch=float(stretch.mean()),
        utilisation=float(core_h.sum() / capacity_h),
        useful_utilisation=float(core_h[~killed].sum() / capacity_h),
        makespan_s=makespan_s,
        asked_core_h=float(asked_h.sum()),
        held_core_h=float(core_h.sum()),
        lost_core_h=float(core_h[killed].sum()),
        asked_gb_h=float((gigabytes * asked_h).sum()),
        held_gb_h=float((gigabytes * core_h).sum()),
    )
