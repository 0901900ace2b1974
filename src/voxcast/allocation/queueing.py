"""Simulation of a queue: first come, first served, with EASY backfill.

The first job that does not fit holds a reservation: the earliest time at which enough processors
will be free if all jobs run for their requested time. Others may overtake it if they end before
that time, or leave enough processors for it (Lifka, "The ANL/IBM SP Scheduling System", JSSPP
1995; Mu'alem and Feitelson, IEEE TPDS 12, 2001). Jobs are killed at their requested time. Tighter
requests shorten waiting on most traces but not all: loose requests leave gaps in the schedule
that short jobs backfill.
"""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.workload import Workload

# The bounded stretch counts shorter jobs as ten seconds long.
LEAST_RUNTIME_S = 10.0


@dataclass(frozen=True)
class Schedule:
    """When each job ran, in the order of the workload.

    Attributes
    ----------
    start_s, end_s : ndarray
        Seconds on the trace's clock.
    killed : ndarray of bool
        Whether the job was killed at its requested time.
    promised_s : ndarray
        The first reservation of a job as head of the queue; NaN if it had none.
    """

    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    killed: NDArray[np.bool_]
    promised_s: NDArray[np.float64]


@dataclass(frozen=True)
class QueueReport:
    """Waiting times and utilisation of a schedule.

    Attributes
    ----------
    mean_wait_s : float
        From submission to start.
    mean_bounded_stretch : float
        Mean of (wait + run) / run, where a run counts as at least 10 s and a stretch as at
        least 1.
    utilisation, useful_utilisation : float
        Share of processor time in use between the first submission and the last end, with and
        without killed jobs.
    """

    jobs: int
    killed: int
    mean_wait_s: float
    mean_bounded_stretch: float
    utilisation: float
    useful_utilisation: float
    makespan_s: float


def simulate(workload: Workload, processors: int, *, backfill: bool = True) -> Schedule:
    """Run the jobs of a trace on a number of processors.

    Parameters
    ----------
    backfill : bool
        Whether jobs may overtake.

    Raises
    ------
    TableError
        If a job requests more processors than there are.
    """
    if processors < 1:
        raise TableError(f"must be at least 1, not {processors}", "processors")
    if len(workload) == 0:
        raise TableError("has no jobs", "workload")
    largest = int(workload.processors.argmax())
    if (requested := int(workload.processors[largest])) > processors:
        number = workload.numbers[largest]
        raise TableError(
            f"requests {requested} processors where there are {processors}", f"job {number}"
        )
    return _Queue(workload, processors, backfill).run()


class _Queue:
    """The state of a simulation; jobs are identified by their index in the workload."""

    def __init__(self, workload: Workload, processors: int, backfill: bool) -> None:
        self.submit = workload.submit_s.tolist()
        self.requested = workload.requested_s.tolist()
        self.wide = workload.processors.tolist()
        self.lasts = np.minimum(workload.runtime_s, workload.requested_s).tolist()
        self.killed = workload.runtime_s > workload.requested_s
        self.backfill = backfill
        self.free = processors
        # A dict, which is ordered and removes any member in constant time.
        self.waiting: dict[int, None] = {}
        self.ends: list[tuple[float, int]] = []  # a heap of actual end times
        self.planned: list[tuple[float, int]] = []  # sorted by requested end time
        self.start = np.full(len(self.submit), np.nan)
        self.end = np.full(len(self.submit), np.nan)
        self.promised = np.full(len(self.submit), np.nan)

    def run(self) -> Schedule:
        arriving = 0
        while arriving < len(self.submit) or self.ends:
            arrives = self.submit[arriving] if arriving < len(self.submit) else np.inf
            now = min(arrives, self.ends[0][0] if self.ends else np.inf)
            while self.ends and self.ends[0][0] <= now:
                job = heapq.heappop(self.ends)[1]
                self.planned.remove((self.start[job] + self.requested[job], job))
                self.free += self.wide[job]
            while arriving < len(self.submit) and self.submit[arriving] <= now:
                self.waiting[arriving] = None
                arriving += 1
            self._start_jobs(now)
        return Schedule(self.start, self.end, self.killed, self.promised)

    def _start_jobs(self, now: float) -> None:
        while self.waiting:
            head = next(iter(self.waiting))
            if self.wide[head] > self.free:
                break
            self._begin(head, now)
        if not self.waiting or not self.backfill:
            return
        reserved_s, spare = self._reservation(head)
        if np.isnan(self.promised[head]):
            self.promised[head] = reserved_s
        for job in list(islice(self.waiting, 1, None)):
            if self.free == 0:
                break
            if self.wide[job] > self.free:
                continue
            if now + self.requested[job] <= reserved_s:
                self._begin(job, now)
            elif self.wide[job] <= spare:
                spare -= self.wide[job]
                self._begin(job, now)

    def _reservation(self, head: int) -> tuple[float, int]:
        """Return the latest start of ``head``, and how many processors it leaves free."""
        free, reserved_s = self.free, np.inf
        for end_s, job in self.planned:
            if end_s > reserved_s:
                break
            free += self.wide[job]
            if free >= self.wide[head]:
                reserved_s = end_s  # jobs that end at the same time count too
        return reserved_s, free - self.wide[head]

    def _begin(self, job: int, now: float) -> None:
        del self.waiting[job]
        self.free -= self.wide[job]
        self.start[job], self.end[job] = now, now + self.lasts[job]
        heapq.heappush(self.ends, (self.end[job], job))
        insort(self.planned, (now + self.requested[job], job))


def report(workload: Workload, schedule: Schedule, processors: int) -> QueueReport:
    """Summarise a schedule of a workload."""
    wait = schedule.start_s - workload.submit_s
    ran = schedule.end_s - schedule.start_s
    stretch = np.maximum((wait + ran) / np.maximum(ran, LEAST_RUNTIME_S), 1.0)
    makespan = float(schedule.end_s.max() - workload.submit_s.min())
    used = ran * workload.processors
    capacity = processors * makespan or 1.0  # if all jobs last 0 s
    return QueueReport(
        len(workload),
        int(schedule.killed.sum()),
        float(wait.mean()),
        float(stretch.mean()),
        float(used.sum() / capacity),
        float(used[~schedule.killed].sum() / capacity),
        makespan,
    )
