"""Workers of a submission: their command, and the sizes of the jobs in which a pass starts them.

A pass is an array of workers, each job as large as most of the cells need that wait when it
begins; what needs more is left to the next.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from voxcast.jobs.draw import MARGIN_S, WORKER_BYTES
from voxcast.jobs.script import array_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import App, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.submission import Plan
    from voxcast.jobs.task import Task

MAX_PASSES = 10
MAX_JOBS = 1000
SHARE = 0.9  # of the cells that wait, for which a pass is large enough
RUNS_PER_JOB = 4  # a job is long enough for so many of its longest runs
LEAST_S = 3600.0  # starting a job for less is seldom worth it
ANNOUNCE_S = 30.0
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Passes:
    """How workers are submitted, pass after pass.

    Attributes
    ----------
    partition_of : callable
        Returns the partition of jobs with a request.
    most : int
        Passes of one command.
    max_jobs : int
        The most jobs of a pass.
    least_s : float
        No job is shorter, where the limits permit.
    """

    partition_of: Callable[[Request], str]
    most: int = MAX_PASSES
    max_jobs: int = MAX_JOBS
    least_s: float = LEAST_S


@dataclass(frozen=True)
class WorkerJobs:
    """Jobs with one worker each; `request` is that of each job, with the worker's own."""

    request: Request
    count: int

    def __str__(self) -> str:
        gpus = f", {self.request.gpus} GPUs" if self.request.gpus else ""
        cpus = f"{self.request.cpus} CPU{'s' if self.request.cpus != 1 else ''}"
        memory = format_bytes(self.request.memory_bytes)
        each = f"{cpus}{gpus}, {memory}, {format_seconds(self.request.walltime_s)}"
        return f"{self.count} job{'s' if self.count != 1 else ''} of {each}"


def next_jobs(
    plan: Plan, tasks: Mapping[str, Task], waiting: Mapping[str, Request], passes: Passes
) -> WorkerJobs:
    """Return the jobs of the next pass.

    Parameters
    ----------
    waiting : mapping of str to Request
        Of the cells that wait, at least one.
    """
    mapped = {} if plan.draw is None else plan.draw.mapped_files_bytes
    requests, expected_s = [], []
    for name, request in waiting.items():
        cell = tasks[name].cell
        added = mapped.get("" if cell is None else cell.app, 0)
        requests.append(replace(request, memory_bytes=request.memory_bytes + added))
        expected_s.append(tasks[name].expected_s)
    run_s = _quantile([r.walltime_s for r in requests])
    memory = _quantile([r.memory_bytes for r in requests])
    fits = [
        seconds
        for seconds, r in zip(expected_s, requests, strict=True)
        if r.walltime_s <= run_s and r.memory_bytes <= memory
    ]
    if not fits:  # none has both at its usual size
        run_s = max(r.walltime_s for r in requests)
        memory = max(r.memory_bytes for r in requests)
        fits = expected_s
    longest_s = plan.limits.max_walltime_s + 2 * MARGIN_S  # the limits apply to runs
    walltime_s = min(max(RUNS_PER_JOB * run_s, passes.least_s), longest_s)
    walltime_s = max(walltime_s, min(run_s + 2 * MARGIN_S, longest_s))
    count = min(math.ceil(sum(fits) / (0.8 * walltime_s)), len(fits), passes.max_jobs)
    cpus, gpus = max(r.cpus for r in requests), max(r.gpus for r in requests)
    return WorkerJobs(Request(walltime_s, int(memory) + WORKER_BYTES, cpus, gpus), max(1, count))


def _quantile(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(SHARE * len(values)) - 1]


def work_command(folder: Path, *options: str) -> list[str]:
    """Return the command of a worker, with this Python."""
    python = [sys.executable, "-m", "voxcast.cli"]
    return [*python, "work", "--pool", str(folder.resolve()), *options]


def worker_app(name: str, command: Sequence[str]) -> App:
    """Return the application that jobs run which are workers."""
    words = tuple(re.sub(r"([{}])", r"\1\1", word) for word in command)
    return App(_UNSAFE.sub("_", name), "1", argv=words, input="none")


def sbatch_line(
    folder: Path, jobs: WorkerJobs, partition: str | None = None, *, per_cpu: bool = False
) -> str:
    """Return a line for a shell that starts the jobs of a pass as an array of Slurm."""
    command = ["voxcast", "work", "--pool", str(folder.resolve())]
    return array_line(command, jobs.request, jobs.count, partition, per_cpu=per_cpu)


def run_local_workers(
    command: Sequence[str], count: int, on_progress: Callable[[], object]
) -> list[int]:
    """Run workers on this machine until all have ended; return their exit codes.

    They end with this process if it is interrupted, and return their cells.

    Parameters
    ----------
    command : sequence of str
        Command of each worker.
    on_progress : callable
        Called every half minute.
    """
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
    announced = time.monotonic()
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if time.monotonic() - announced >= ANNOUNCE_S:
                announced = time.monotonic()
                on_progress()
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in workers:
            worker.wait()
    return [worker.returncode for worker in workers]
