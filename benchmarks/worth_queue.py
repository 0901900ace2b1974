"""What ways of asking are worth over many sets of jobs, in simulated queues.

Sets of `worth_requests` from both halves of the subjects meet jobs of others on four nodes. The
queue is served in order, and later jobs fill the gaps before the first that waits (EASY backfill,
Lifka, JSSPP 1995); failed jobs are requested again as by ``voxcast submit``. Margins on the bound
of time are arms of their own: one is chosen by half of the subjects and confirmed by the other.
Ratios are to the rule on the same set, with intervals over sets.
Writes ``results/worth/queue.json``::

    python benchmarks/worth_queue.py
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from voxcast.files import write_json
from voxcast.jobs.task import Attempt, Limits, Task, next_request
from voxcast.records import Outcome, Request
from worth import figures, ratios
from worth_requests import (
    ARMS,
    CORES,
    MEMORY_SCALE,
    NODE_BYTES,
    NODES,
    SEED,
    Arm,
    Job,
    OtherJob,
    by_image,
    job_set,
    other_jobs,
)

FOLDER = Path("results/worth")
HALVES = ("choose", "confirm")
SETS = 40
MARGINS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
QUEUED: dict[str, Arm] = {
    **{name: arm for name, arm in ARMS.items() if name != "voxcast"},
    **{f"bound + {100 * margin:.0f} %": by_image(margin) for margin in MARGINS},
}


def main() -> int:
    """Write the figures of all arms on both halves of the subjects."""
    content: dict[str, Any] = {"sets": SETS, "seed": SEED}
    for half in HALVES:
        records = []
        for number in range(1, SETS + 1):
            print(f"{half}, set {number}", file=sys.stderr, flush=True)
            jobs, others = job_set(FOLDER / "jobs.json", half, number), other_jobs(number)
            for name, arm in QUEUED.items():
                tasks = arm(jobs, [f"/{job.app}/{job.name}.txt" for job in jobs])
                record = {"arm": name, "round": number} | simulate(jobs, tasks, others)
                records.append(figures(record))
        content[half] = {name: _summary(records, name) for name in QUEUED}
    write_json(FOLDER / "queue.json", content)
    return 0


def _summary(rounds: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    """Return the ratios of an arm to the rule, and its failures in a set."""
    of_arm = [r for r in rounds if r["arm"] == arm]
    failures = [r["attempts"] - r["completed"] for r in of_arm]
    return ratios(rounds, arm, "rule") | {
        "failed_attempts": sum(failures) / len(failures),
        "unfinished": sum(r["jobs"] - r["completed"] for r in of_arm),
    }


@dataclass
class _Node:
    """Free cores and memory."""

    cores: int = CORES
    memory: float = NODE_BYTES / MEMORY_SCALE


@dataclass(eq=False)  # each is itself alone: found in the queue without comparing their fields
class _Waiting:
    """A job in the queue; those of others have no task."""

    number: int
    request: Request
    runtime_s: float
    peak_bytes: float
    task: Task | None
    since_s: float = 0.0
    attempts: tuple[Attempt, ...] = ()


@dataclass
class _Queue:
    """The queue of a cluster: what waits, what runs, and until when at the latest."""

    nodes: list[_Node] = field(default_factory=lambda: [_Node() for _ in range(NODES)])
    waiting: list[_Waiting] = field(default_factory=list)
    running: list[tuple[float, int, float, int, _Waiting, Outcome]] = field(default_factory=list)
    count: itertools.count[int] = field(default_factory=itertools.count)

    def started(self, now_s: float) -> list[tuple[_Waiting, float, Outcome]]:
        """Start what can start; return each job with how long it will run, and how it ends."""
        started = []
        reserved: tuple[int, float] | None = None  # the node of the first that waits, and when
        for job in list(self.waiting):
            place = self._place(job.request, reserved, now_s)
            if place is not None:
                self.waiting.remove(job)
                started.append(self._start(job, place, now_s))
            elif reserved is None:
                reserved = self._reservation(job.request)
        return started

    def _place(
        self, request: Request, reserved: tuple[int, float] | None, now_s: float
    ) -> int | None:
        for place, node in enumerate(self.nodes):
            fits = node.cores >= request.cpus and node.memory >= request.memory_bytes
            if reserved is not None and place == reserved[0]:
                fits = fits and now_s + request.walltime_s <= reserved[1]
            if fits:
                return place
        return None

    def _start(self, job: _Waiting, place: int, now_s: float) -> tuple[_Waiting, float, Outcome]:
        request, lasts_s = job.request, job.runtime_s
        outcome: Outcome = "completed"
        if job.peak_bytes > request.memory_bytes and lasts_s / 2 < request.walltime_s:
            outcome, lasts_s = "out_of_memory", lasts_s / 2
        elif lasts_s > request.walltime_s:
            outcome, lasts_s = "timeout", request.walltime_s
        self.nodes[place].cores -= request.cpus
        self.nodes[place].memory -= request.memory_bytes
        latest_s = now_s + request.walltime_s
        entry = (now_s + lasts_s, next(self.count), latest_s, place, job, outcome)
        heapq.heappush(self.running, entry)
        return job, lasts_s, outcome

    def _reservation(self, request: Request) -> tuple[int, float]:
        """Return where and when a job can start at the latest, by what all others requested."""
        first = (0, inf)
        for place, node in enumerate(self.nodes):
            cores, memory = node.cores, node.memory
            here = sorted((e[2], e[1], e[4].request) for e in self.running if e[3] == place)
            for latest_s, _, other in here:
                cores, memory = cores + other.cpus, memory + other.memory_bytes
                if cores >= request.cpus and memory >= request.memory_bytes:
                    first = min(first, (place, latest_s), key=lambda entry: entry[1])
                    break
        return first

    def ended(self, now_s: float) -> list[tuple[_Waiting, Outcome]]:
        """Return the jobs that have ended, whose cores are free again."""
        ended = []
        while self.running and self.running[0][0] <= now_s:
            _, _, _, place, job, outcome = heapq.heappop(self.running)
            self.nodes[place].cores += job.request.cpus
            self.nodes[place].memory += job.request.memory_bytes
            ended.append((job, outcome))
        return ended


def simulate(
    jobs: Sequence[Job], tasks: Sequence[Task], others: Sequence[OtherJob]
) -> dict[str, Any]:
    """Return what became of every attempt, in the form of the records of `worth`."""
    arrivals = [
        (0.0, _Waiting(n, task.requests.first, job.runtime_s, job.peak_bytes / MEMORY_SCALE, task))
        for n, (job, task) in enumerate(zip(jobs, tasks, strict=True))
    ]
    random.Random(SEED).shuffle(arrivals)  # noqa: S311
    arrivals += [(job.arrival_s, _of_others(n, job)) for n, job in enumerate(others)]
    arrivals.sort(key=lambda arrival: (arrival[0], arrival[1].task is not None))
    attempts_by_job: list[list[dict[str, Any]]] = [[] for _ in jobs]
    waits: list[dict[str, str]] = []
    queue = _Queue()
    while arrivals or queue.running:
        arrival_s = [arrival[0] for arrival in arrivals[:1]]
        now_s = min(arrival_s + [entry[0] for entry in queue.running[:1]])
        for job, outcome in queue.ended(now_s):
            if again := _again(job, outcome, now_s):
                queue.waiting.append(again)
        while arrivals and arrivals[0][0] <= now_s:
            since_s, job = arrivals.pop(0)
            queue.waiting.append(replace(job, since_s=since_s))
        for job, lasts_s, outcome in queue.started(now_s):
            times = {"submitted_at": _time(job.since_s), "started_at": _time(now_s)}
            if job.task is None:
                waits.append({"State": "COMPLETED", "Eligible": times["submitted_at"],
                              "Start": times["started_at"]})  # fmt: skip
                continue
            attempts_by_job[job.number].append(times | {
                "outcome": outcome, "walltime_s": job.request.walltime_s, "ran_s": lasts_s,
                "memory_bytes": job.request.memory_bytes * MEMORY_SCALE,
            })  # fmt: skip
    return {
        "jobs": [
            {"runtime_s": job.runtime_s, "peak_bytes": job.peak_bytes, "attempts": attempts}
            for job, attempts in zip(jobs, attempts_by_job, strict=True)
        ],
        "others": waits,
    }  # fmt: skip


def _of_others(number: int, job: OtherJob) -> _Waiting:
    request = Request(60.0 * job.asked_minutes, job.memory_mb * 2**20, job.cpus)
    return _Waiting(number, request, float(job.run_s), 0.0, None)


def _again(job: _Waiting, outcome: Outcome, now_s: float) -> _Waiting | None:
    """Return the next attempt of a job; None if there is none."""
    if job.task is None:
        return None
    attempts = (*job.attempts, Attempt(job.request, outcome))
    step = next_request(job.task.requests, attempts, job.task.limits(Limits()))
    if not isinstance(step, Request):
        return None
    return replace(job, request=step, attempts=attempts, since_s=now_s)


def _time(since_s: float) -> str:
    return datetime.fromtimestamp(since_s, UTC).replace(tzinfo=None).isoformat()


if __name__ == "__main__":
    sys.exit(main())
