"""A pass of workers as the tasks of a submission, so that Slurm runs them as an array.

Each pass is a folder ``passes/0001`` of what they work on, such as a pool: scripts, logs, and the
record by which whoever comes later finds the jobs again; see `voxcast.jobs.submission`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError
from voxcast.hpc.worker_jobs import work_command
from voxcast.jobs.claim import claimed
from voxcast.jobs.escalate import Limits, RequestSequence
from voxcast.jobs.plan import Plan, SlurmOptions
from voxcast.jobs.state import SubmissionState
from voxcast.jobs.submission import SUBMISSION_FILE, Submission
from voxcast.jobs.task import Task
from voxcast.quantities import format_bytes, format_seconds
from voxcast.records import App

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from voxcast.allocation.machines import Cluster
    from voxcast.hpc.pool import Pool
    from voxcast.hpc.worker_jobs import WorkerJobs
    from voxcast.jobs.claim import Claim
    from voxcast.records import Request

PASSES, ENDED_WORKERS = "passes", "ended"
CLOSED = "closed"  # the event of a pass that nobody follows any more
# A worker whose node was lost, or that was preempted, is started again so often. One that was too
# small is not: the next pass has larger jobs.
MAX_STARTS = 5
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


@contextlib.contextmanager
def following(shared: Path) -> Iterator[Claim]:
    """Hold the right to submit workers to a folder, such as a pool, which may not be made yet.

    Raises
    ------
    RunError
        If another process that lives holds it.
    """
    for folder in (shared, shared / PASSES):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with claimed(shared / PASSES) as claim:
        yield claim


def pass_plan(
    pool: Pool, jobs: WorkerJobs, partition: str, options: SlurmOptions, cluster: str = ""
) -> Plan:
    """Return the plan of a pass over a pool; see `worker_plan`."""
    name = f"work-{pool.settings.name}"
    return worker_plan(name, work_command(pool), jobs, partition, options, cluster)


def worker_plan(
    name: str,
    command: Sequence[str],
    jobs: WorkerJobs,
    partition: str,
    options: SlurmOptions,
    cluster: str = "",
) -> Plan:
    """Return the plan of a pass: one worker a task.

    Parameters
    ----------
    name : str
        Of the jobs.
    command : sequence of str
        Of a worker.
    options : SlurmOptions
        Account and the like of the jobs.
    cluster : str
        Its name, for the record.
    """
    words = [re.sub(r"([{}])", r"\1\1", word) for word in command]
    request = jobs.request
    requests = RequestSequence(
        (request.walltime_s,), (request.memory_bytes,), request.cpus, request.gpus, partition,
        "gpu" if request.gpus else "cpu",
    )  # fmt: skip
    tasks = tuple(
        Task(
            f"worker-{number:04}", "", requests,
            max_walltime_s=request.walltime_s, max_memory_bytes=request.memory_bytes,
        )
        for number in range(1, jobs.count + 1)
    )  # fmt: skip
    app = App(_UNSAFE.sub("_", name), "1", argv=tuple(words), input="none")
    return Plan(app, tasks, {}, "none", cluster, Limits(max_attempts=MAX_STARTS), options)


def create_pass(shared: Path, plan: Plan) -> Submission:
    """Make the folder of the next pass over a folder."""
    folder = shared / PASSES
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    folder /= f"{max(numbers, default=0) + 1:04}"
    return Submission.create(plan, folder / ENDED_WORKERS, "slurm", folder)


def open_pass(shared: Path) -> Submission | None:
    """Return the pass whose jobs are queued or running; None if there is none."""
    for path in sorted((shared / PASSES).glob(f"[0-9]*/{SUBMISSION_FILE}"), reverse=True):
        submission = Submission.open(path.parent)
        events = list(submission.events())
        is_closed = any(event.get("event") == CLOSED for event in events)
        if not is_closed and SubmissionState.of(submission.plan, events).live:
            return submission
    return None


def within_partition(cluster: Cluster, name: str | None) -> Cluster:
    """Return a cluster with one of its partitions only; the same cluster where none is named.

    Raises
    ------
    ConfigError
        If it has no such partition.
    """
    if name is None:
        return cluster
    partitions = tuple(p for p in cluster.partitions if p.name == name)
    if not partitions:
        names = ", ".join(partition.name for partition in cluster.partitions)
        raise ConfigError("unknown partition", name, f"{cluster.name} has {names}")
    nodes = tuple(node for node in cluster.node_types if node.partition == name)
    return dataclasses.replace(cluster, partitions=partitions, node_types=nodes)


def partition_for(cluster: Cluster, request: Request) -> str:
    """Return the first partition of a cluster that takes a request.

    Raises
    ------
    ConfigError
        If none does.
    """
    for partition in cluster.partitions:
        limit_s = partition.max_walltime_s or float("inf")
        largest = partition.max_memory_bytes or float("inf")
        cores = partition.max_cores or float("inf")
        if request.walltime_s <= limit_s and request.cpus <= cores:
            for node in cluster.node_types:
                if (
                    node.partition == partition.name
                    and request.cpus <= node.cores
                    and request.gpus <= node.gpus
                    and request.memory_bytes <= min(largest, node.memory_bytes)
                ):
                    return partition.name
    gpus = f", {request.gpus} GPUs" if request.gpus else ""
    size = f"{request.cpus} CPUs{gpus}, {format_bytes(request.memory_bytes)}"
    problem = f"no partition takes a job of {size}, {format_seconds(request.walltime_s)}"
    raise ConfigError(problem, cluster.name, "check the limits in conf/cluster")
