"""A campaign on a cluster: workers draw its cells, with requests that the partitions take."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError
from voxcast.jobs.draw import MARGIN_S, WORKER_BYTES
from voxcast.jobs.passes import work_command, worker_app
from voxcast.jobs.submission import Draw, Plan, Submission
from voxcast.jobs.task import Limits, RequestSequence, Task
from voxcast.measure.host import HostFacts
from voxcast.quantities import format_bytes
from voxcast.records import Configuration
from voxcast.runs.store import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.submission import SlurmOptions
    from voxcast.measure.campaign import Campaign
    from voxcast.measure.plan import CampaignPlan
    from voxcast.records import Cell, Request, Run

    Forecast = Callable[[Mapping[str, Cell], Mapping[str, Path]], Mapping[str, "CellForecast"]]

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
# Where a model predicts the cell: multiples of its upper bound.
PREDICTED_FACTORS = (1.0, 2.0, 4.0)


@dataclass(frozen=True)
class CellForecast:
    """The prediction of a model for a cell: the median of its time, and upper bounds."""

    median_s: float
    upper_s: float
    upper_bytes: float


def requests_of(
    cell: Cell,
    expected_s: float,
    runs: Iterable[Run],
    limits: Limits,
    time_limit_s: float | None,
    predicted: CellForecast | None = None,
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
    predicted : CellForecast, optional
        For this cell; it replaces the runs on record.
    """
    configuration = cell.configuration
    alike = [
        run for run in runs
        if run.app == cell.app and run.cpus == configuration.cpus
        and run.device == configuration.device and run.outcome == "completed"
    ]  # fmt: skip
    factors, most_s, most_bytes = TIME_FACTORS, expected_s, 0.0
    if predicted is not None:
        factors, most_s, most_bytes = PREDICTED_FACTORS, predicted.upper_s, predicted.upper_bytes
    elif alike:
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
    forecast: Forecast | None = None,
) -> tuple[Submission, CampaignPlan]:
    """Make the submission of a campaign, or add new cells to it; images are prepared before.

    A run on record counts wherever it was made. Workers make no local runs of reference, and
    repeat no noisy runs: the metronome measures the speed of their machines.

    Parameters
    ----------
    options : SlurmOptions
        Of the jobs of workers.
    forecast : callable, optional
        Predicts new cells, given by key, with the files of their volumes; it may leave out any.

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
    forecasts = {} if forecast is None or not new else forecast(new, plan.paths)
    limit_s = campaign.settings.conditions.time_limit_s
    tasks = []
    for key, cell in new.items():
        expected_s = plan.expected_s.get((cell.app, cell.volume_id), 1.0)
        predicted = forecasts.get(key)
        requests = requests_of(cell, expected_s, rows.values(), limits, limit_s, predicted)
        expected_s = expected_s if predicted is None else predicted.median_s
        tasks.append(Task.of_cell(cell, requests, expected_s))
    if forecasts:
        logger.info("requests of %d of %d new cells are predicted", len(forecasts), len(new))
    recorded = len(plan.cells.keys() & rows.keys())
    logger.info("%d runs are on record, %d added to %s", recorded, len(tasks), folder)
    return Submission.of_workers(folder, replace(pool, tasks=tuple(tasks))), plan


def collect_pool(campaign: Campaign, submission: Submission) -> list[Path]:
    """Put new runs of workers into parts of the campaign's history; return the parts."""
    return collect(
        submission.out,
        campaign.history,
        campaign=campaign.name,
        campaign_sha256=campaign.definition_sha256,
    )


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
