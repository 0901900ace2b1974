"""A campaign on a cluster: requests of its cells, passes of workers that draw them, and parts.

A pass is an array of workers, each job as large as most of the cells need that wait when it
begins; what needs more is left to the next. A cell that is too long for every worker runs in
parts, if its application says how it can be split, see `voxcast.records.App.split`. Parts are
cells like others, and may be split again. Their runs are kept apart in ``part_runs``: the history
gets the joined run alone, whose times are sums, and whose memory is the largest of its parts.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ConfigError
from voxcast.files import canonical_json, json_text, sync_folder
from voxcast.jobs.submission import Draw, Plan, SlurmOptions, Submission
from voxcast.jobs.task import Limits, RequestSequence, Task
from voxcast.jobs.worker import MARGIN_S, WORKER_BYTES
from voxcast.measure.host import HostFacts
from voxcast.measure.runner import LOG_FILE
from voxcast.quantities import counted, format_bytes
from voxcast.records import App, Cell, Configuration, Phase, Request, Run, as_fields
from voxcast.runs.series import RECORD_FILE, read_record

if TYPE_CHECKING:
    from voxcast.allocation.site import Cluster
    from voxcast.measure.campaign import Campaign
    from voxcast.measure.plan import CampaignPlan

logger = logging.getLogger(__name__)

POOL = "pool"
ONE_CPU = Configuration("cpu", 1)
# Requests of a cell where nothing like it is on record: multiples of the time that its
# application states, and memories.
TIME_FACTORS = (3.0, 10.0, 30.0)
LEAST_S = 60.0
MEMORIES = [2.0**n * 10**9 for n in range(1, 8)]  # 2 GB to 128 GB
# Where runs of the application in the same configuration are on record: multiples of the largest.
RECORDED_FACTORS = (1.3, 2.0, 4.0)
MAX_JOBS = 1000
SHARE = 0.9  # of the cells that wait, for which a pass is large enough
RUNS_PER_JOB = 4  # a job is long enough for so many of its longest runs
LEAST_JOB_S = 3600.0  # starting a job for less is seldom worth it
ANNOUNCE_S = 30.0
PART_RUNS = "part_runs"
MACHINE = (
    "host_id", "host_class", "cpu_model", "sitting", "probe_cpu", "probe_membw", "probe_disk",
)  # fmt: skip


def requests_of(
    cell: Cell,
    expected_s: float,
    runs: Iterable[Run],
    limits: Limits,
    time_limit_s: float | None,
) -> RequestSequence:
    """Return the times and memories that the attempts of a cell request.

    Parameters
    ----------
    expected_s : float
        Expected time of the run, as its application states it.
    runs : iterable of Run
        Runs on record; only runs of the application in the same configuration count.
    time_limit_s : float, optional
        At which a run is on record as a lower bound: no request is longer.
    """
    configuration = cell.configuration
    alike = [
        run for run in runs
        if run.app == cell.app and run.cpus == configuration.cpus
        and run.device == configuration.device and run.outcome == "completed"
    ]  # fmt: skip
    factors, most_s, most_bytes = TIME_FACTORS, expected_s, 0.0
    if alike:
        factors, most_s = RECORDED_FACTORS, max(run.runtime_s or 0.0 for run in alike)
        most_bytes = max(run.peak_rss_bytes or 0 for run in alike)
    times_s = [max(LEAST_S, factor * most_s) for factor in factors]
    memories = [max(10**8, factor * most_bytes) for factor in factors if most_bytes] or MEMORIES
    if configuration.mem_limit_bytes is not None:
        memories = [configuration.mem_limit_bytes]
    longest_s = min(time_limit_s or math.inf, limits.max_walltime_s)
    return RequestSequence(
        walltimes_s=tuple(sorted({min(t, longest_s) for t in times_s})),
        memories_bytes=tuple(sorted({int(min(m, limits.max_memory_bytes)) for m in memories})),
        cpus=configuration.cpus,
        gpus=configuration.gpus,
    )


def make_campaign_pool(
    campaign: Campaign,
    cluster: Cluster,
    project: Path,
    options: SlurmOptions,
) -> tuple[Submission, CampaignPlan]:
    """Make the submission of a campaign, or add new cells to it; images are prepared before.

    A run on record counts wherever it was made. Workers make no local runs of reference, and
    repeat no noisy runs: the metronome measures the speed of their machines.

    Parameters
    ----------
    options : SlurmOptions
        Of the jobs of workers.

    Raises
    ------
    ConfigError
        If its folder holds something else, or was made by another release.
    """
    folder = campaign.folder / POOL
    settings = replace(campaign.settings, host=largest_machine(cluster))
    plan = replace(campaign, settings=settings).plan()
    mapped = {app: cluster.added_bytes_of(app) for app in settings.apps}
    limits = cluster_limits(cluster, max(mapped.values(), default=0))
    campaign.collect()
    rows = campaign.recorded(plan, any_host=True)
    paths = {name: str(path.absolute()) for name, path in plan.paths.items()}
    draw = Draw(
        dict(settings.apps), paths, str(project), dict(plan.recipes), settings.conditions, mapped
    )
    pool = Plan(
        worker_app(f"work-{campaign.name}", work_command(folder)), cluster=cluster.name,
        limits=limits, slurm=options, draw=draw,
    )  # fmt: skip
    listed = {task.name for task in Submission.of_workers(folder, pool).plan.tasks}
    new = {
        key: cell
        for key, cell in plan.cells.items()
        if key not in rows and replace(cell, host_class="").key not in listed
    }
    limit_s = campaign.settings.conditions.time_limit_s
    tasks = []
    for cell in new.values():
        expected_s = plan.expected_s.get((cell.app, cell.volume_id), 1.0)
        requests = requests_of(cell, expected_s, rows.values(), limits, limit_s)
        tasks.append(Task.of_cell(cell, requests, expected_s))
    recorded = len(plan.cells.keys() & rows.keys())
    logger.info("%d runs are on record, %d added to %s", recorded, len(tasks), folder)
    return Submission.of_workers(folder, replace(pool, tasks=tuple(tasks))), plan


def largest_machine(cluster: Cluster) -> HostFacts:
    """Return a machine on which every cell fits that fits any node of a cluster."""
    gpus = max(node.gpus for node in cluster.node_types)
    return HostFacts(
        cpu_model=cluster.name,
        cores=max(node.cores for node in cluster.node_types),
        memory_bytes=int(max(node.memory_bytes for node in cluster.node_types)),
        gpu_models=("GPU",) * gpus,
        kernel="",
        hostname="",
    )


def cluster_limits(cluster: Cluster, mapped_files_bytes: int = 0) -> Limits:
    """Return the largest run of any partition: its largest job, less overheads.

    These are the worker, and files that the run maps where these count.

    Raises
    ------
    ConfigError
        If these leave nothing of the largest job.
    """
    candidates = cluster.candidates([ONE_CPU])
    most = max(candidate.max_memory_bytes for candidate in candidates)
    if most <= WORKER_BYTES + mapped_files_bytes:
        taken = f"a worker takes {format_bytes(WORKER_BYTES)}"
        taken += f", mapped files {format_bytes(mapped_files_bytes)}" if mapped_files_bytes else ""
        problem = f"no memory is left for a run in a job of {format_bytes(most)}: {taken}"
        raise ConfigError(problem, cluster.name, "allow larger jobs: max_memory, memory")
    return Limits(
        max_walltime_s=max(
            max(c.max_walltime_s - 2 * MARGIN_S, c.max_walltime_s / 2) for c in candidates
        ),
        max_memory_bytes=most - WORKER_BYTES - mapped_files_bytes,
        max_failures=2,
    )


def within_partition(cluster: Cluster, name: str | None) -> Cluster:
    """Return a cluster with one of its partitions only; the same cluster where none is named.

    Raises
    ------
    ConfigError
        If it has no such partition.
    """
    if name is None:
        return cluster
    candidates = cluster.candidates([ONE_CPU], name)
    nodes = tuple(candidate.node for candidate in candidates)
    return replace(cluster, partitions=(candidates[0].partition,), node_types=nodes)


def partition_for(cluster: Cluster, request: Request) -> str:
    """Return the first partition of a cluster that takes a request.

    Raises
    ------
    ConfigError
        If none does.
    """
    fitting = {
        candidate.partition.name
        for candidate in cluster.candidates([Configuration("cpu", request.cpus, request.gpus)])
        if request.walltime_s <= candidate.max_walltime_s
        and request.memory_bytes <= candidate.max_memory_bytes
    }
    for partition in cluster.partitions:
        if partition.name in fitting:
            return partition.name
    problem = f"no partition takes a job of {request.label}"
    raise ConfigError(problem, cluster.name, "check the limits in conf/cluster")


@dataclass(frozen=True)
class WorkerJobs:
    """Jobs with one worker each; `request` is of each job, with the worker's own."""

    request: Request
    count: int

    def __str__(self) -> str:
        return f"{counted(self.count, 'job')} of {self.request.label}"


def jobs_for(
    plan: Plan,
    tasks: Mapping[str, Task],
    waiting: Mapping[str, Request],
    partition_of: Callable[[Request], str],
    *,
    max_jobs: int = MAX_JOBS,
    least_s: float = LEAST_JOB_S,
) -> WorkerJobs | None:
    """Return the jobs of the next pass; None if no cell waits.

    Parameters
    ----------
    waiting : mapping of str to Request
        Of the cells that wait.
    partition_of : callable
        Returns the partition of jobs with a request.
    max_jobs : int
        The most jobs of a pass.
    least_s : float
        No job is shorter, where the limits permit.
    """
    if not waiting:
        return None
    mapped = {} if plan.draw is None else plan.draw.mapped_files_bytes
    apps = {name: task.cell.app for name in waiting if (task := tasks[name]).cell is not None}
    needs_s = np.array([request.walltime_s for request in waiting.values()])
    needs_bytes = np.array([r.memory_bytes + mapped.get(apps[n], 0) for n, r in waiting.items()])
    run_s = float(np.quantile(needs_s, SHARE, method="inverted_cdf"))
    memory_bytes = np.quantile(needs_bytes[needs_s <= run_s], SHARE, method="inverted_cdf")
    fits = (needs_s <= run_s) & (needs_bytes <= memory_bytes)
    expected_s = np.array([tasks[name].expected_s for name in waiting])[fits].sum()
    longest_s = plan.limits.max_walltime_s + 2 * MARGIN_S  # the limits apply to runs
    walltime_s = min(max(RUNS_PER_JOB * run_s, run_s + 2 * MARGIN_S, least_s), longest_s)
    count = max(1, min(math.ceil(expected_s / (0.8 * walltime_s)), int(fits.sum()), max_jobs))
    cpus, gpus = (max(getattr(r, name) for r in waiting.values()) for name in ("cpus", "gpus"))
    request = Request(walltime_s, int(memory_bytes) + WORKER_BYTES, cpus, gpus)
    return WorkerJobs(replace(request, partition=partition_of(request)), count)


def work_command(folder: Path, *options: str) -> list[str]:
    """Return the command of a worker, with this Python."""
    return [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(folder.resolve()), *options]


def worker_app(name: str, command: Sequence[str]) -> App:
    """Return the application that jobs run which are workers."""
    words = tuple(re.sub(r"([{}])", r"\1\1", word) for word in command)
    return App(name, "1", argv=words, input="none")


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
    with contextlib.ExitStack() as at_end:
        workers = [
            at_end.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            for _ in range(count)
        ]
        for worker in workers:
            at_end.callback(worker.terminate)
        announced = time.monotonic()
        while any(worker.poll() is None for worker in workers):
            time.sleep(0.2)
            if time.monotonic() - announced >= ANNOUNCE_S:
                announced = time.monotonic()
                on_progress()
    return [worker.returncode for worker in workers]


def items(app: App, parameters: Mapping[str, Any]) -> range:
    """Return the items that a run goes through; one where it cannot be split.

    Examples
    --------
    >>> from voxcast.records import App
    >>> app = App("a", "1", split={"count": "folds", "range": "some"})
    >>> items(app, {"folds": 5, "some": ""}), items(app, {"folds": 5, "some": "2:4"})
    (range(0, 5), range(2, 4))
    """
    try:
        chosen = str(parameters.get(app.split["range"]) or "")
        first, sign, end = chosen.partition(":")
        return range(int(first), int(end)) if sign else range(int(parameters[app.split["count"]]))
    except (KeyError, TypeError, ValueError):
        return range(1)


def parts_of(task: Task, app: App, walltime_s: float, max_walltime_s: float) -> list[Task]:
    """Return the parts of a cell that are short enough; empty if it cannot be split.

    Parameters
    ----------
    walltime_s : float
        The request of the cell.
    max_walltime_s : float
        The longest request.
    """
    cell = task.cell
    all_items = range(1) if cell is None else items(app, cell.parameters)
    longer = walltime_s / max_walltime_s if max_walltime_s < math.inf else 0.0
    pieces = min(max(2, math.ceil(longer)), len(all_items))
    if cell is None or pieces < 2:
        return []
    edges = [round(n * len(all_items) / pieces) + all_items.start for n in range(pieces + 1)]
    parts = []
    for first, end in itertools.pairwise(edges):
        share = (end - first) / len(all_items)
        parameters = {**cell.parameters, app.split["range"]: f"{first}:{end}"}
        times_s = {
            min(share * s, max_walltime_s) for s in (*task.requests.walltimes_s, walltime_s)
        }
        part = Task.of_cell(
            replace(cell, parameters=parameters),
            replace(task.requests, walltimes_s=tuple(sorted(times_s))),
            share * task.expected_s,
        )
        parts.append(replace(part, part_of=task.name))
    return parts


def join(cell: Cell, folders: Sequence[Path], into: Path) -> str:
    """Make the record of a cell, in a new folder, of its parts; return its key."""
    shutil.rmtree(into, ignore_errors=True)
    (into / "out").mkdir(parents=True)
    with (into / LOG_FILE).open("wb") as log:
        for number, folder in enumerate(folders, 1):
            shutil.copytree(folder / "out", into / "out" / f"part-{number:03d}")
            log.write((folder / LOG_FILE).read_bytes())
    records = [read_record(folder) for folder in folders]
    longest = max(records, key=lambda record: record.run.runtime_s or 0.0)
    joined = replace(cell, host_class=longest.cell.host_class)
    merged, phases = joined_run(
        [(record.run, record.phases) for record in records], records.index(longest)
    )
    machines = {record.cell.host_class for record in records}
    merged = replace(
        merged, cell_key=joined.key, parameters_json=canonical_json(joined.parameters),
        noisy=merged.noisy or len(machines) > 1,
    )  # fmt: skip
    content = longest.content | {
        "run": as_fields(merged), "cell": as_fields(joined),
        "phases": [as_fields(phase) for phase in phases],
        "parts": [folder.name for folder in folders],
    }  # fmt: skip
    (into / RECORD_FILE).write_text(json_text(content), encoding="utf-8")
    sync_folder(into)
    return joined.key


def joined_run(
    parts: Sequence[tuple[Run, Sequence[Phase]]], longest: int = 0
) -> tuple[Run, list[Phase]]:
    """Return the run and phases of parts that ran one after the other.

    Times and traffic are sums, so that the start of the application counts once for each part;
    memory, threads and use of a GPU are the largest. A value that is unknown in one part is
    unknown in the whole. The machine and its speed are taken from the part ``longest``.
    """
    runs, joined, start_s = [run for run, _ in parts], [], 0.0
    for run, phases in parts:
        joined += [
            replace(p, start_s=p.start_s + start_s, end_s=p.end_s + start_s) for p in phases
        ]
        start_s += run.runtime_s or 0.0
    first = min(runs, key=lambda run: run.started_at)
    changes: dict[str, Any] = {
        "outcome": next((r.outcome for r in runs if r.outcome != "completed"), "completed"),
        "noisy": any(run.noisy for run in runs),
        "limit_s": None,
    }
    for name in MACHINE:
        changes[name] = getattr(runs[longest], name)
    sums = ("runtime_s", "cpu_s", "io_read_bytes", "io_write_bytes", "metronome_ticks")
    largest_of = ("peak_rss_bytes", "peak_cgroup_bytes", "peak_threads", "peak_gpu_bytes")
    for name in (*sums, *largest_of):
        values = [getattr(run, name) for run in runs]
        changes[name] = None if None in values else (sum if name in sums else max)(values)
    return replace(first, **changes), joined
