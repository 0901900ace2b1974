"""What a worker may use: from its options, from the job it runs in, or from the machine.

Variables of Slurm as in ``man sbatch`` (22.05 and later), where memory is in MiB.
"""

from __future__ import annotations

import logging
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.profiling.host import HostFacts
    from voxcast.records import Configuration, Request

logger = logging.getLogger(__name__)

MIB = 2**20
# The worker and its metronome beside a run: 204 MB; before the first run on a node, while its
# speed is probed: 299 MB.
WORKER_BYTES = 320 * MIB
MARGIN_S = 30.0  # from the end of a run that is stopped to the end of the allocation
SQUEUE_S = 20.0


@dataclass(frozen=True)
class WorkerAllocation:
    """What a worker may use.

    Attributes
    ----------
    cpus, gpus : int
    memory_bytes : int
        For runs, without what the worker takes itself.
    deadline : float
        Time of the monotonic clock at which a run must have ended; infinity for no limit.
    """

    cpus: int
    gpus: int
    memory_bytes: int
    deadline: float = float("inf")

    @property
    def left_s(self) -> float:
        """Seconds left for a run that starts now."""
        return self.deadline - time.monotonic()

    def shortfall(self, configuration: Configuration, request: Request) -> str:
        """Return what a run would lack here; empty if it fits."""
        if configuration.gpus > self.gpus or (configuration.device == "gpu" and not self.gpus):
            return "GPUs"
        if request.cpus > self.cpus:
            return "CPUs"
        if request.memory_bytes > self.memory_bytes:
            return "memory"
        return "time" if request.walltime_s > self.left_s else ""

    def __str__(self) -> str:
        gpus = f", {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        left_s = self.left_s
        left = "no time limit" if left_s == float("inf") else format_seconds(max(0.0, left_s))
        cpus = f"{self.cpus} CPU{'s' if self.cpus != 1 else ''}"
        return f"{cpus}{gpus}, {format_bytes(self.memory_bytes)}, {left}"


def worker_allocation(
    facts: HostFacts,
    environment: Mapping[str, str],
    *,
    cpus: int | None = None,
    memory_bytes: int | None = None,
    time_budget_s: float | None = None,
) -> WorkerAllocation:
    """Return the allocation of this process.

    Parameters
    ----------
    facts : HostFacts
        Of this machine.
    environment : mapping
        Variables, those of Slurm among them.
    cpus, memory_bytes, time_budget_s : optional
        Of the worker's options; they go before what the job says.
    """
    job_cpus = _integer(environment, "SLURM_CPUS_PER_TASK") or _integer(
        environment, "SLURM_CPUS_ON_NODE"
    )
    chosen_cpus = cpus or min(job_cpus or facts.cores, facts.cores)
    job_bytes = _job_memory(environment, job_cpus or chosen_cpus)
    total = memory_bytes or min(job_bytes or facts.memory_bytes, facts.memory_bytes)
    times_s = [job_left_s(environment), time_budget_s]
    left_s = min((t for t in times_s if t is not None), default=float("inf"))
    return WorkerAllocation(
        chosen_cpus,
        _gpus(environment, len(facts.gpu_models)),
        max(total - WORKER_BYTES, total // 2),
        time.monotonic() + left_s - min(MARGIN_S, left_s / 20 if left_s < float("inf") else 0.0),
    )


def job_left_s(environment: Mapping[str, str], now: float | None = None) -> float | None:
    """Return how long the job still has; None outside a job, or if it has no limit.

    By ``SLURM_JOB_END_TIME``, else by asking ``squeue``.
    """
    if end := _integer(environment, "SLURM_JOB_END_TIME"):
        return max(0.0, end - (time.time() if now is None else now))
    if not (job := environment.get("SLURM_JOB_ID")):
        return None
    if "SLURM_ARRAY_TASK_ID" in environment:  # the id of one task is that of the array, too
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%L"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SQUEUE_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("the time that the job has left is unknown (%s); give --time-budget", error)
        return None
    left_s = parse_time_left(answer.stdout)
    if left_s is None and answer.stdout.strip() != "UNLIMITED":
        text = answer.stdout.strip() or "nothing"
        logger.warning("squeue says %s of the time that is left; give --time-budget", text)
    return left_s


def parse_time_left(text: str) -> float | None:
    """Read the time left as ``squeue`` prints it; None for no limit.

    Examples
    --------
    >>> parse_time_left("1-02:00:10"), parse_time_left("5:07"), parse_time_left("UNLIMITED")
    (93610.0, 307.0, None)
    """
    days, _, clock = text.strip().rpartition("-")
    try:
        seconds = 0.0
        for part in clock.split(":"):
            seconds = 60 * seconds + int(part)
        return seconds + 86400 * int(days or 0)
    except ValueError:
        return None


def usable_cores(cpus: int, cores: list[int], seed: int) -> list[int]:
    """Return the cores that a worker's runs are pinned to.

    Where the site does not confine jobs to their cores, all workers of a node see all of its
    cores: each then takes others, as far as chance goes.

    Examples
    --------
    >>> usable_cores(2, [4, 5, 6, 7], seed=7)
    [4, 7]
    """
    start = seed % len(cores) if len(cores) > cpus else 0
    return sorted((cores[start:] + cores[:start])[:cpus])


def _job_memory(environment: Mapping[str, str], cpus: int) -> int | None:
    """Return the memory of the job on this node, in bytes; 0 MiB stands for all of the node."""
    if per_node := _integer(environment, "SLURM_MEM_PER_NODE"):
        return per_node * MIB
    if per_cpu := _integer(environment, "SLURM_MEM_PER_CPU"):
        return per_cpu * cpus * MIB
    return None


def _gpus(environment: Mapping[str, str], present: int) -> int:
    if "SLURM_JOB_ID" not in environment:
        return present
    return min(present, _integer(environment, "SLURM_GPUS_ON_NODE") or 0)


def _integer(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else None
