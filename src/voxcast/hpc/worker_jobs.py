"""The jobs in which workers of a pool are started: their size, and how many.

A pass of jobs is as large as most of the cells that wait need; the few that need more are left to
a pass with larger jobs, once the others are done.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.hpc.remaining import Remaining
from voxcast.hpc.worker_allocation import MARGIN_S, WORKER_BYTES
from voxcast.jobs.script import array_line
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from voxcast.hpc.pool import Pool

logger = logging.getLogger(__name__)

SHARE = 0.9  # of the cells that wait, for which a pass is large enough
RUNS_PER_JOB = 4  # a job is long enough for so many of its longest runs
LEAST_S = 3600.0  # starting a job for less is seldom worth it
MAX_JOBS = 1000
ANNOUNCE_S = 30.0


@dataclass(frozen=True)
class WorkerJobs:
    """Jobs with one worker each.

    Attributes
    ----------
    request : Request
        Of each job, with what the worker takes itself.
    count : int
    cells : int
        How many of the cells that wait now fit.
    """

    request: Request
    count: int
    cells: int

    def __str__(self) -> str:
        gpus = f", {self.request.gpus} GPUs" if self.request.gpus else ""
        cpus = f"{self.request.cpus} CPU{'s' if self.request.cpus != 1 else ''}"
        memory = format_bytes(self.request.memory_bytes)
        each = f"{cpus}{gpus}, {memory}, {format_seconds(self.request.walltime_s)}"
        return f"{self.count} job{'s' if self.count != 1 else ''} of {each}"


def next_jobs(
    pool: Pool, *, max_jobs: int = MAX_JOBS, least_s: float = LEAST_S
) -> WorkerJobs | None:
    """Return the jobs of the next pass; None if no cell waits.

    Parameters
    ----------
    max_jobs : int
        The most jobs.
    least_s : float
        No job is shorter, where the bounds of the pool permit.
    """
    remaining = Remaining(pool, lambda _: True, lambda *_: "")
    remaining.look()
    requests, expected_s = [], []
    mapped = pool.settings.mapped_files_bytes
    for key, attempts in pool.tokens.waiting().items():
        cell = remaining.cell(key)
        request = None if cell is None else remaining.request(key, attempts)
        if cell is not None and request is not None:
            counted = request.memory_bytes + mapped.get(cell.cell.app, 0)
            requests.append(dataclasses.replace(request, memory_bytes=counted))
            expected_s.append(cell.expected_s)
    if not requests:
        return None
    bounds = pool.settings.bounds
    cpus, gpus = max(r.cpus for r in requests), max(r.gpus for r in requests)
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
    longest_s = bounds.max_walltime_s + 2 * MARGIN_S  # the bounds are those of runs
    walltime_s = min(max(RUNS_PER_JOB * run_s, least_s), longest_s)
    walltime_s = max(walltime_s, min(run_s + 2 * MARGIN_S, longest_s))
    count = max(1, min(math.ceil(sum(fits) / (0.8 * walltime_s)), len(fits), max_jobs))
    request = Request(walltime_s, int(memory) + WORKER_BYTES, cpus, gpus)
    return WorkerJobs(request, count, len(fits))


def work_command(pool: Pool, *options: str) -> list[str]:
    """Return the command of a worker, with this Python."""
    python = [sys.executable, "-m", "voxcast.cli"]
    return [*python, "work", "--pool", str(pool.folder.resolve()), *options]


def sbatch_line(pool: Pool, jobs: WorkerJobs, partition: str | None = None) -> str:
    """Return a line for a shell that starts the jobs of a pass as an array of Slurm."""
    command = ["voxcast", "work", "--pool", str(pool.folder.resolve())]
    return array_line(command, jobs.request, jobs.count, partition)


def run_local_workers(
    command: Sequence[str], count: int, on_progress: Callable[[], object]
) -> list[int]:
    """Run workers on this machine until all have ended; return their exit codes.

    They end with this process if it is interrupted, and return what they had.

    Parameters
    ----------
    command : sequence of str
        Of each worker.
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


def _quantile(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(SHARE * len(values)) - 1]
