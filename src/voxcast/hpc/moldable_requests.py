"""Recommendations with a choice of cores, as moldable tasks; the request of each as planned."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.list_schedule import Machine
from voxcast.allocation.moldable import MoldableTasks
from voxcast.errors import ConfigError
from voxcast.hpc import job_plan
from voxcast.hpc.job_schedule import JobSchedule, PlannedTime
from voxcast.hpc.tasks import task_names
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from voxcast.hpc.job_plan import JobPlan

    Row = Mapping[str, Any]

ONE_CORE, WHOLE_NODES = "one core a job", "whole nodes"


@dataclass(frozen=True)
class NodeLimits:
    """What the jobs of a submission may hold together.

    Attributes
    ----------
    nodes : int or None
        None: as few as end within `deadline_s`.
    most_core_h : float
        Core-hours of all jobs.
    whole_nodes : bool
        Jobs take whole nodes.
    job_start_s : float
        For which a job holds its cores before its first task begins.
    """

    nodes: int | None
    cores_per_node: int
    deadline_s: float | None = None
    most_core_h: float = math.inf
    whole_nodes: bool = False
    job_start_s: float = job_plan.JOB_START_S


def planned_requests(
    images: Sequence[Row],
    confidence: float,
    limits: NodeLimits,
    node_memory_bytes: float = math.inf,
) -> tuple[list[Row], JobSchedule]:
    """Return the row of each image that is planned, and the jobs.

    Parameters
    ----------
    images : sequence of mapping
        Of ``recommend --json``; each has its ``chosen`` row and all ``configurations``.
    confidence : float
        Of the upper bounds of the rows.
    node_memory_bytes : float
        Of a node; a task that asks for a larger part of it than of its cores occupies these.

    Raises
    ------
    ConfigError
        If there is no allocation on CPUs that fits, or the limits cannot be held.
    """
    rows = [_options(image, limits.cores_per_node) for image in images]
    cpus = sorted({count for options in rows for count in options})
    runtime_s = _table(rows, cpus, lambda row: float(row["runtime_s_median"]))
    memory = _table(rows, cpus, lambda row: float(row["memory_bytes"]))
    parts = memory / node_memory_bytes * limits.cores_per_node
    needed = np.where(np.isfinite(parts), np.ceil(parts), 0)
    cores = np.maximum.accumulate(np.maximum(np.array(cpus), needed).astype(int), axis=1)
    tasks = MoldableTasks.of(runtime_s, cores, limits.cores_per_node)
    kinds = [(image["chosen"]["partition"], image["chosen"]["device"]) for image in images]
    spread = _spread(rows, cpus, confidence)
    settings: dict[str, Any] = {
        "most_core_h": limits.most_core_h, "whole_nodes": limits.whole_nodes
    }  # fmt: skip
    if limits.nodes is not None:
        machine = Machine(limits.nodes, limits.cores_per_node, limits.job_start_s)
        plan = job_plan.plan_jobs(tasks, machine, kinds, spread=spread, **settings)
    else:
        assert limits.deadline_s is not None  # noqa: S101  # checked with the options
        plan = job_plan.nodes_for_deadline(
            tasks, limits.deadline_s, limits.cores_per_node, kinds, spread, **settings
        )
    interval_s = plan.interval_s(spread)
    if limits.deadline_s is not None and interval_s[1] > limits.deadline_s:
        problem = f"{limits.nodes} nodes may need {format_seconds(interval_s[1])}"
        raise ConfigError(problem, "--deadline", "leave out --nodes to plan as many as are needed")
    paths = [os.path.abspath(image["image"]) for image in images]  # noqa: PTH100
    names = task_names(paths)
    chosen = [rows[n][cpus[option]] for n, option in enumerate(plan.options.tolist())]
    return chosen, _schedule(tasks, plan, names, interval_s)


def planned_recommendation(
    content: dict[str, Any],
    limits: NodeLimits | None,
    where: Path,
    node_memory_bytes: float = math.inf,
) -> tuple[dict[str, Any], JobSchedule | None]:
    """Return a recommendation with the rows that are planned as chosen, and the jobs.

    Parameters
    ----------
    content : dict
        As ``recommend --json`` writes it.
    limits : NodeLimits or None
        None leaves it as it is.
    where : Path
        Named in errors.

    Raises
    ------
    ConfigError
        As `planned_requests`, or if the recommendation is incomplete.
    """
    if limits is None:
        return content, None
    images = [image for image in content["images"] if image["chosen"] is not None]
    if len(images) < len(content["images"]) or not images:
        return content, None  # whoever reads the tasks says which image has no request
    try:
        confidence = float(content["policy"]["confidence"])
        rows, schedule = planned_requests(images, confidence, limits, node_memory_bytes)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"incomplete: {error!r}", where, "write it again") from None
    pairs = zip(images, rows, strict=True)
    chosen = [{**image, "chosen": row} for image, row in pairs]
    return {**content, "images": chosen}, schedule


def _options(image: Row, cores_per_node: int) -> dict[int, Row]:
    """Return the rows of the node type that was chosen, by number of CPUs."""
    chosen = image["chosen"]
    options = {
        int(row["cpus"]): row
        for row in image["configurations"]
        if not row["gpus"] and row["excluded"] is None and row["cpus"] <= cores_per_node
        and (row["node_type"], row["partition"], row["device"])
        == (chosen["node_type"], chosen["partition"], chosen["device"])
    }  # fmt: skip
    if not options:
        problem = f"no allocation without GPUs fits into {cores_per_node} CPUs"
        then = "allow more with --cores-per-node, or submit it without"
        raise ConfigError(problem, str(image["image"]), then)
    return options


def _table(rows: Sequence[Mapping[int, Row]], cpus: Sequence[int], value: Any) -> np.ndarray:
    return np.array([
        [value(options[count]) if count in options else np.inf for count in cpus]
        for options in rows
    ])  # fmt: skip


def _spread(
    rows: Sequence[Mapping[int, Row]], cpus: Sequence[int], confidence: float
) -> np.ndarray:
    """Return the deviation of each task, the largest of its options."""
    from scipy.stats import norm

    def log_ratio(row: Row) -> float:
        return math.log(float(row["runtime_s_upper"]) / float(row["runtime_s_median"]))

    ratios = _table(rows, cpus, log_ratio)
    largest = np.where(np.isfinite(ratios), ratios, 0.0).max(axis=1)
    return np.asarray(largest / float(norm.ppf(confidence)))


def _schedule(
    tasks: MoldableTasks, plan: JobPlan, names: Sequence[str], interval_s: tuple[float, float]
) -> JobSchedule:
    machine, lanes = plan.machine, plan.jobs.lanes
    others = {
        ONE_CORE: job_plan.one_core_a_job(tasks, machine),
        WHOLE_NODES: job_plan.whole_node_a_job(tasks, machine),
    }
    return JobSchedule(
        machine.nodes, machine.cores_per_node,
        tuple(
            tuple(tuple(names[task] for task in lane) for lane in lanes[job])
            for job in plan.order.tolist()
        ),
        _planned_time(plan), interval_s, tasks.makespan_bound(machine.cores),
        {name: _planned_time(other) for name, other in others.items()},
    )  # fmt: skip


def _planned_time(plan: JobPlan) -> PlannedTime:
    return PlannedTime(plan.makespan_s(), plan.core_h())
