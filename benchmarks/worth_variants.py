"""What voxcast could have done otherwise in the rounds of `worth_rounds`, in the simulated queue.

Each record gives the jobs of others and the time that starting a job took. The hundred are
simulated with the arrays of ``voxcast submit`` in its order or the longest first, and with
requests after a timeout that grow at least by a factor. Writes ``results/worth/variants.json``::

    python benchmarks/worth_variants.py
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.node_room import Machine
from voxcast.allocation.queue_report import report
from voxcast.allocation.queueing import Schedule, simulate
from voxcast.allocation.resubmission import Resubmission
from voxcast.allocation.workload import Workload
from voxcast.files import write_json
from voxcast.jobs.arrays import grouped
from voxcast.jobs.task import walltime_sequences
from voxcast.quantities import slurm_bytes
from worth_arms import CONFIDENCE, DEFAULT_S, MEMORY_SCALE, STEP_S, Job, plan_of, read_jobs
from worth_figures import CORES, JOBS, figures, node_bytes, seconds
from worth_rounds import NODE_BYTES, NODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.jobs.task import Task

ROUNDS, OUT = Path("results/worth/rounds"), Path("results/worth/variants.json")
ROUNDS_GROWTH = 1.2  # of requests when the rounds were made
PEAK_AT = 0.5  # the jobs hold their memory in the second half
VARIANTS = {
    "as it is": (False, 1.0),
    "longest first": (True, 1.0),
    "half as much more": (False, 1.5),
    "longest first, half as much more": (True, 1.5),
}


@dataclass(frozen=True)
class Queued:
    """A job in the simulated queue; memory as recorded."""

    submit_s: float
    runtime_s: float
    times_s: tuple[float, ...]
    cpus: int
    requested_bytes: float
    used_bytes: float
    is_other: bool = False


def queued(jobs: list[Job], arm: str, at_s: float, overhead_s: float) -> list[list[Queued]]:
    """Return the arrays of a submission, in its order."""
    arrays = []
    for app in sorted({job.app for job in jobs}):
        of_app = [job for job in jobs if job.app == app]
        tasks = plan_of(arm, of_app, Path("inputs"), NODE_BYTES).tasks
        later = _later_s(of_app, tasks) if arm == "voxcast" else [()] * len(tasks)
        arrays += [
            [
                Queued(
                    at_s, of_app[n].runtime_s + overhead_s,
                    (array.request.walltime_s, *later[n]), 1,
                    array.request.memory_bytes * MEMORY_SCALE, of_app[n].peak_bytes,
                )
                for n in array.members
            ]
            for array in grouped([task.requests.first for task in tasks], [0] * len(tasks))
        ]  # fmt: skip
    return arrays


def _later_s(jobs: list[Job], tasks: Sequence[Task]) -> list[tuple[float, ...]]:
    """Return the requests after the first as they were in the rounds, before the factor grew."""
    median_s, upper_s = (
        [job.predicted[f"runtime_s_{end}"] for job in jobs] for end in ("median", "upper")
    )
    first_s = [task.requests.first.walltime_s for task in tasks]
    ladders = walltime_sequences(first_s, median_s, upper_s, CONFIDENCE, STEP_S, ROUNDS_GROWTH)
    return [
        tuple(sorted({min(rung, DEFAULT_S) for rung in later if first < DEFAULT_S}))
        for first, *later in ladders
    ]


def others_of(record: dict[str, Any]) -> list[Queued]:
    """Return the jobs of others of a round."""
    return [
        Queued(
            seconds(o["Eligible"]), float(o["ElapsedRaw"]), (60.0 * float(o["TimelimitRaw"]),),
            int(o["ReqCPUS"]), float(slurm_bytes(o["ReqMem"]) or 0) * MEMORY_SCALE, 0.0, True,
        )
        for o in record["others"]
    ]  # fmt: skip


def simulated(rows: list[Queued], growth: float) -> dict[str, float]:
    """Simulate, and return the figures of the hundred jobs."""
    rows = sorted(rows, key=lambda row: row.submit_s)  # stable
    cpus = np.array([row.cpus for row in rows])
    workload = Workload(
        np.arange(len(rows)), np.array([row.submit_s for row in rows]),
        np.array([row.runtime_s for row in rows]), np.array([row.times_s[0] for row in rows]),
        cpus, np.full(len(rows), np.nan),
        used_bytes=np.array([row.used_bytes for row in rows]) / cpus,
        requested_bytes=np.array([row.requested_bytes for row in rows]) / cpus,
    )  # fmt: skip
    times = {n: _growing(row.times_s, growth) for n, row in enumerate(rows)}
    schedule = simulate(
        workload, Machine(NODES, CORES, node_bytes()), peak_at=PEAK_AT,
        resubmission=Resubmission(times),
    )  # fmt: skip
    mine = np.flatnonzero([not row.is_other for row in rows])
    of_mine = np.isin(schedule.job, mine)
    number = np.full(len(rows), -1)
    number[mine] = np.arange(len(mine))
    part = Schedule(
        **{
            name: number[values[of_mine]] if name == "job" else values[of_mine]
            for name, values in vars(schedule).items()
        }
    )
    of_jobs = Workload(
        workload.numbers[mine], workload.submit_s[mine], workload.runtime_s[mine],
        workload.requested_s[mine], cpus[mine], workload.waited_s[mine],
    )  # fmt: skip
    summary = asdict(report(of_jobs, part, NODES * CORES))
    names = ("makespan_s", "mean_wait_s", "mean_turnaround_s", "held_core_h", "killed")
    return {name: float(summary[name]) for name in names}


def _growing(times_s: tuple[float, ...], growth: float) -> tuple[float, ...]:
    rungs = [times_s[0]]
    for time_s in times_s[1:]:
        if time_s >= growth * rungs[-1]:
            rungs.append(time_s)
    return tuple(rungs)


def main() -> int:
    """Simulate every variant in every round on record."""
    jobs = read_jobs(JOBS)
    results: dict[str, list[dict[str, float]]] = {}
    for path in sorted(ROUNDS.glob("*-voxcast.json")):
        record = json.loads(path.read_text())
        overhead_s = figures(record)["mean_overhead_s"]
        at_s = min(seconds(job["attempts"][0]["submitted_at"]) for job in record["jobs"])
        cases = {f"voxcast, {name}": ("voxcast", *how) for name, how in VARIANTS.items()} | {
            arm: (arm, False, 1.0) for arm in ("default", "rule")
        }
        for name, (arm, longest_first, growth) in cases.items():
            arrays = queued(jobs, arm, at_s, overhead_s)
            if longest_first:
                arrays.sort(key=lambda array: -array[0].times_s[0])
            rows = others_of(record) + [row for array in arrays for row in array]
            results.setdefault(name, []).append(simulated(rows, growth))
    write_json(OUT, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
