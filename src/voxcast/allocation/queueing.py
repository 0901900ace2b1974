"""Simulation of a queue: first come, first served, with EASY backfill, on nodes with memory.

The first job that does not fit holds a reservation: the earliest time at which there will be room
for it if all jobs run for their requested time. Others may overtake it if they end before that
time, or leave enough room for it (Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995; Mu'alem
and Feitelson, IEEE TPDS 12, 2001). Jobs are killed at their requested time, and where they need
more memory than they requested; they may be asked for again. Tighter requests shorten waiting on
most traces but not all: loose requests leave gaps in the schedule that short jobs backfill.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.node_room import Machine, NodeRoom
from voxcast.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voxcast.allocation.node_room import Places
    from voxcast.allocation.resubmission import Resubmission
    from voxcast.allocation.workload import Workload

COMPLETED, TIMEOUT, OUT_OF_MEMORY = 0, 1, 2
BACKFILL_DEPTH = 1000  # waiting jobs that are tried, as Slurm's bf_max_job_test


@dataclass(frozen=True)
class Schedule:
    """When each attempt ran: the first of each job in the order of the workload, then others.

    Attributes
    ----------
    job : ndarray of int
        Index of the job in the workload.
    submit_s, start_s, end_s : ndarray
        Seconds on the trace's clock.
    requested_s, requested_bytes : ndarray
        The request of the attempt; memory is that of each processor, 0 if none was requested.
    outcome : ndarray of int
        `COMPLETED`, `TIMEOUT` or `OUT_OF_MEMORY`.
    promised_s : ndarray
        The first reservation of an attempt as head of the queue; NaN if it had none.
    """

    job: NDArray[np.int64]
    submit_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    requested_s: NDArray[np.float64]
    requested_bytes: NDArray[np.float64]
    outcome: NDArray[np.int8]
    promised_s: NDArray[np.float64]

    @property
    def killed(self) -> NDArray[np.bool_]:
        """Whether the attempt was killed for its time or memory."""
        return np.asarray(self.outcome != COMPLETED)


def simulate(
    workload: Workload,
    machine: Machine | int,
    *,
    backfill: bool = True,
    resubmission: Resubmission | None = None,
    peak_at: float = 1.0,
) -> Schedule:
    """Run the jobs of a trace on a machine.

    Parameters
    ----------
    machine : Machine or int
        A number of processors is a machine of one node whose memory is no matter.
    backfill : bool
        Whether jobs may overtake.
    resubmission : Resubmission, optional
        How killed jobs are asked for again; without it they end.
    peak_at : float
        The share of its runtime after which a job needs its peak of memory; 1 is the worst case.

    Raises
    ------
    TableError
        If a job requests more than the machine has.
    """
    if isinstance(machine, int):
        machine = Machine(1, machine)
    if len(workload) == 0:
        raise TableError("has no jobs", "workload")
    largest = int(workload.processors.argmax())
    if (requested := int(workload.processors[largest])) > machine.processors:
        number = workload.numbers[largest]
        raise TableError(
            f"requests {requested} processors where there are {machine.processors}",
            f"job {number}",
        )
    room = NodeRoom.of(machine)
    for number, wide, memory in zip(
        workload.numbers.tolist(), workload.processors.tolist(),
        workload.packed_bytes().tolist(), strict=True,
    ):  # fmt: skip
        if memory > machine.memory_limit(wide) and room.places(wide, memory) is None:
            raise TableError(
                f"requests {memory / 1e9:.3g} GB for each of {wide} processors, more than nodes "
                f"of {machine.memory_bytes / 1e9:.3g} GB have", f"job {number}",
            )  # fmt: skip
    return _Queue(workload, machine, backfill, resubmission, peak_at).run()


class _Queue:
    """The state of a simulation; attempts are identified by their index."""

    def __init__(
        self, workload: Workload, machine: Machine, backfill: bool,
        resubmission: Resubmission | None, peak_at: float,
    ) -> None:  # fmt: skip
        n = len(workload)
        self.machine, self.backfill, self.resubmission = machine, backfill, resubmission
        self.numbers = workload.numbers.tolist()
        self.wide = workload.processors.tolist()
        self.runtime = workload.runtime_s.tolist()
        self.used = workload.used_memory().tolist()
        self.peak_at = peak_at
        self.job = list(range(n))
        self.submit = workload.submit_s.tolist()
        self.requested = workload.requested_s.tolist()
        self.memory = workload.packed_bytes().tolist()
        self.start, self.end, self.promised = ([math.nan] * n for _ in range(3))
        self.outcome = [COMPLETED] * n
        self.attempts: dict[int, int] = {}  # of jobs that were killed
        self.places: dict[int, Places] = {}  # of running attempts
        self.room = NodeRoom.of(machine)
        # A dict, which is ordered and removes any member in constant time.
        self.waiting: dict[int, None] = {}
        self.arriving = [(s, a) for a, s in enumerate(self.submit)]  # a heap, as it is sorted
        heapq.heapify(self.arriving)
        self.ends: list[tuple[float, int]] = []  # a heap of actual end times
        self.planned: list[tuple[float, int]] = []  # sorted by requested end time
        # The head, the time of its reservation, and the room that it leaves then.
        self.reserved: tuple[int, float, NodeRoom] | None = None

    def run(self) -> Schedule:
        while self.arriving or self.ends:
            now = min(
                self.arriving[0][0] if self.arriving else math.inf,
                self.ends[0][0] if self.ends else math.inf,
            )
            while self.ends and self.ends[0][0] <= now:
                self._finish(heapq.heappop(self.ends)[1])
                self.reserved = None
            arrived = []
            while self.arriving and self.arriving[0][0] <= now:
                arrived.append(heapq.heappop(self.arriving)[1])
            self.waiting.update(dict.fromkeys(arrived))
            self._start_attempts(now, arrived)
        return Schedule(
            np.array(self.job), np.array(self.submit), np.array(self.start), np.array(self.end),
            np.array(self.requested), np.array(self.memory),
            np.array(self.outcome, dtype=np.int8), np.array(self.promised),
        )  # fmt: skip

    def _finish(self, attempt: int) -> None:
        planned = self.start[attempt] + self.requested[attempt], attempt
        del self.planned[bisect_left(self.planned, planned)]
        self.room.give_back(self.places.pop(attempt), self.memory[attempt])
        if self.outcome[attempt] == COMPLETED or self.resubmission is None:
            return
        job = self.job[attempt]
        self.attempts[job] = self.attempts.get(job, 1) + 1
        following = self.resubmission.following(
            self.numbers[job], self.requested[attempt], self.memory[attempt],
            self.outcome[attempt] == OUT_OF_MEMORY, self.attempts[job],
            self.machine.memory_limit(self.wide[job]),
        )  # fmt: skip
        if following is None:
            return
        self.job.append(job)
        self.submit.append(self.end[attempt])
        self.requested.append(following[0])
        self.memory.append(following[1])
        for values in (self.start, self.end, self.promised):
            values.append(math.nan)
        self.outcome.append(COMPLETED)
        heapq.heappush(self.arriving, (self.end[attempt], len(self.job) - 1))

    def _start_attempts(self, now: float, arrived: list[int]) -> None:
        while self.waiting:
            head = next(iter(self.waiting))
            places = self.room.places(self.wide[self.job[head]], self.memory[head])
            if places is None:
                break
            self._begin(head, places, now)
        if not self.waiting or not self.backfill or self.room.free == 0:
            return
        if self.reserved is not None and self.reserved[0] == head:
            # Nothing has ended: those that waited before were tried, and there is less room now.
            candidates = arrived if len(self.waiting) <= BACKFILL_DEPTH else []
        else:
            self.reserved = head, *self._reservation(head)
            candidates = list(islice(self.waiting, 1, BACKFILL_DEPTH))
        if math.isnan(self.promised[head]):
            self.promised[head] = self.reserved[1]
        self._backfill(candidates, *self.reserved[1:], now)

    def _backfill(
        self, candidates: list[int], reserved_s: float, spare: NodeRoom, now: float
    ) -> None:
        common = self.room.common(spare)
        # Of what found no room, by its width, the least memory; now there is less room still.
        refused: dict[int, float] = {}
        refused_if_long: dict[int, float] = {}
        for attempt in candidates:
            wide, memory = self.wide[self.job[attempt]], self.memory[attempt]
            if memory >= refused.get(wide, math.inf):
                continue
            is_short = now + self.requested[attempt] <= reserved_s
            if not is_short and memory >= refused_if_long.get(wide, math.inf):
                continue
            places = (self.room if is_short else common).places(wide, memory)
            if places is None:
                (refused if is_short else refused_if_long)[wide] = memory
                continue
            if not is_short:
                spare.take(places, memory)
            self._begin(attempt, places, now)
            common = self.room.common(spare)
            if self.room.free == 0:
                break

    def _reservation(self, head: int) -> tuple[float, NodeRoom]:
        """Return the latest start of ``head``, and the room that it leaves then."""
        room, reserved_s = self.room.copy(), math.inf
        wide, memory = self.wide[self.job[head]], self.memory[head]
        places = None
        for end_s, attempt in self.planned:
            if end_s > reserved_s:
                break
            room.give_back(self.places[attempt], self.memory[attempt])
            # Jobs that end at the same time count too.
            if reserved_s == math.inf and room.places(wide, memory) is not None:
                reserved_s = end_s
        places = room.places(wide, memory)
        if places is None:  # every running attempt has ended, so there is room
            raise AssertionError(f"attempt {head} fits no empty machine")
        room.take(places, memory)
        return reserved_s, room

    def _begin(self, attempt: int, places: Places, now: float) -> None:
        del self.waiting[attempt]
        job = self.job[attempt]
        self.room.take(places, self.memory[attempt])
        self.places[attempt] = places
        lasts_s, outcome = self.runtime[job], COMPLETED
        if lasts_s > self.requested[attempt]:
            lasts_s, outcome = self.requested[attempt], TIMEOUT
        is_short_of_memory = 0 < self.memory[attempt] < self.used[job]
        if is_short_of_memory and self.peak_at * self.runtime[job] <= lasts_s:
            lasts_s, outcome = self.peak_at * self.runtime[job], OUT_OF_MEMORY
        self.start[attempt], self.end[attempt] = now, now + lasts_s
        self.outcome[attempt] = outcome
        heapq.heappush(self.ends, (self.end[attempt], attempt))
        insort(self.planned, (now + self.requested[attempt], attempt))
