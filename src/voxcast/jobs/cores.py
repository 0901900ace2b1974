"""The CPUs of each image, such that a set of images is done soonest on given cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.allocation.list_schedule import Machine, list_schedule
from voxcast.allocation.moldable import MoldableTasks
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    Row = Mapping[str, Any]

JOB_START_S = 5.0  # for which a job holds its cores before its task begins
STRETCHES = (0.8, 1.0, 1.2, 1.8)  # of the lower bound, for which cores are allotted
AS_GOOD = 1.005  # times the smallest makespan


def with_planned_cpus(
    content: Mapping[str, Any], nodes: int, cores_per_node: int, job_start_s: float = JOB_START_S
) -> dict[str, Any]:
    """Return a recommendation in which each image has the CPUs by which all end soonest.

    Cores are allotted for several makespans; the allotment is taken whose jobs end first when
    they start longest first. One core for each image is among them.

    Parameters
    ----------
    content : mapping
        As ``recommend --json`` writes it.

    Raises
    ------
    ConfigError
        If an image has no allocation on CPUs that fits a node.
    """
    images = content["images"]
    if not images or any(image["chosen"] is None for image in images):
        return dict(content)
    rows = [_options(image, cores_per_node) for image in images]
    cpus = sorted({count for options in rows for count in options})
    runtime_s = [
        [float(options[n]["runtime_s_median"]) if n in options else np.inf for n in cpus]
        for options in rows
    ]
    tasks = MoldableTasks.of(runtime_s, cpus, cores_per_node)
    machine = Machine(nodes, cores_per_node, job_start_s)
    bound_s = tasks.makespan_bound(machine.cores)
    allotments = [tasks.allotment(stretch * bound_s) for stretch in STRETCHES]
    allotments += [tasks.fewest_cores(), tasks.allotment(0.0)]
    makespans_s = [_makespan_s(tasks, options, machine) for options in allotments]
    as_good = [
        options
        for options, makespan_s in zip(allotments, makespans_s, strict=True)
        if makespan_s <= AS_GOOD * min(makespans_s)
    ]
    chosen = min(as_good, key=tasks.core_s).tolist()
    planned = [
        {**image, "chosen": options[cpus[option]]}
        for image, options, option in zip(images, rows, chosen, strict=True)
    ]
    return {**content, "images": planned}


def _makespan_s(tasks: MoldableTasks, options: np.ndarray, machine: Machine) -> float:
    task_s, cores = tasks.chosen(options)
    return list_schedule(task_s, cores, np.argsort(-task_s, kind="stable"), machine).makespan_s


def _options(image: Row, cores_per_node: int) -> dict[int, Row]:
    """Return the rows of the node type that was chosen, by number of CPUs."""
    chosen = image["chosen"]
    place = (chosen["node_type"], chosen["partition"], chosen["device"])
    options = {
        int(row["cpus"]): row
        for row in image["configurations"]
        if not row["gpus"] and row["excluded"] is None and row["cpus"] <= cores_per_node
        and (row["node_type"], row["partition"], row["device"]) == place
    }  # fmt: skip
    if not options:
        problem = f"no allocation without GPUs fits into {cores_per_node} CPUs"
        then = "allow more with --cores-per-node, or submit it without"
        raise ConfigError(problem, str(image["image"]), then)
    return options
