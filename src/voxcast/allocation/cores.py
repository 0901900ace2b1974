"""The CPUs of each image, chosen together so that a set of images is done soonest on given cores.

A task is moldable if its cores are chosen before it starts and then stay. Two facts are assumed,
and enforced on predictions: with more cores no task takes longer (it may leave some idle), and
none takes fewer core-hours (Brent). Then, for a makespan to be reached, each task gets the fewest
cores with which it is short enough, its canonical allotment (Mounié, Rapine & Trystram, SIAM J.
Comput. 37:401, 2007), and a makespan for which these need more core-hours than there are is out of
reach. The smallest that is not out of reach is the lower bound.

Cores are chosen first and the tasks are then placed as given, in the two phases of Turek, Wolf &
Yu (SPAA 1992). Tasks are placed by list scheduling (Graham, SIAM J. Appl. Math. 17:416, 1969):
whenever cores become free, the first task of the list that fits into a node starts there. A core
is never shared, and a task runs on one node. Slurm does the same with jobs of equal priority,
where backfilling finds the gaps.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]
    Row = Mapping[str, Any]

JOB_START_S = 5.0  # for which a job holds its cores before its task begins
STRETCHES = (0.8, 1.0, 1.2, 1.8)  # of the lower bound, for which cores are allotted
AS_GOOD = 1.005  # times the smallest makespan
HALVINGS = 60  # of the interval in which the lower bound lies


def with_planned_cpus(
    content: Mapping[str, Any], nodes: int, cores_per_node: int, job_start_s: float = JOB_START_S
) -> dict[str, Any]:
    """Return a recommendation in which each image has the CPUs by which all end soonest.

    Cores are allotted for several makespans, and the jobs of each allotment are placed longest
    first. Of the allotments whose jobs end about first, the one with the fewest core-hours is
    taken. The fewest cores and the most for each image are among them.

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
    rows = [_rows_by_cpus(image, cores_per_node) for image in images]
    cpus = np.array(sorted({count for row in rows for count in row}), dtype=np.intp)
    predicted_s = [
        [float(row[n]["runtime_s_median"]) if n in row else np.inf for n in cpus.tolist()]
        for row in rows
    ]
    runtime_s = monotone(predicted_s, cpus)
    bound_s = makespan_bound_s(runtime_s, cpus, nodes * cores_per_node)
    plans: list[tuple[float, float, Ints]] = []
    for limit_s in (*(stretch * bound_s for stretch in STRETCHES), np.inf, 0.0):
        option = allotment(runtime_s, limit_s)
        task_s, cores = np.take_along_axis(runtime_s, option[:, None], 1)[:, 0], cpus[option]
        end_s = makespan_s(task_s + job_start_s, cores, nodes, cores_per_node)
        plans.append((end_s, float((task_s * cores).sum()), option))
    soonest_s = min(end_s for end_s, _, _ in plans)
    as_good = [plan for plan in plans if plan[0] <= AS_GOOD * soonest_s]
    _, _, option = min(as_good, key=lambda plan: plan[1])
    planned = [
        {**image, "chosen": row[count]}
        for image, row, count in zip(images, rows, cpus[option].tolist(), strict=True)
    ]
    return {**content, "images": planned}


def _rows_by_cpus(image: Row, cores_per_node: int) -> dict[int, Row]:
    """Return the rows of the node type that was chosen, by number of CPUs."""
    chosen = image["chosen"]
    place = (chosen["node_type"], chosen["partition"], chosen["device"])
    rows = {
        int(row["cpus"]): row
        for row in image["configurations"]
        if not row["gpus"] and row["excluded"] is None and row["cpus"] <= cores_per_node
        and (row["node_type"], row["partition"], row["device"]) == place
    }  # fmt: skip
    if not rows:
        problem = f"no allocation without GPUs fits into {cores_per_node} CPUs"
        then = "allow more with --cores-per-node, or submit it without"
        raise ConfigError(problem, str(image["image"]), then)
    return rows


def monotone(predicted_s: ArrayLike, cpus: Ints) -> Floats:
    """Return runtimes that do not increase with the CPUs, nor core-seconds decrease.

    Parameters
    ----------
    predicted_s : array_like, shape (tasks, options)
        Infinite where a task does not have the option.
    cpus : ndarray of int, shape (options,)
        Increasing.
    """
    seconds = np.asarray(predicted_s, dtype=np.float64)
    allowed = np.isfinite(seconds)
    shortest_s = np.minimum.accumulate(seconds, axis=1)
    core_s = np.where(allowed, cpus * np.where(np.isfinite(shortest_s), shortest_s, 0.0), 0.0)
    return np.where(allowed, np.maximum.accumulate(core_s, axis=1) / cpus, np.inf)


def allotment(runtime_s: Floats, limit_s: float) -> Ints:
    """Return the option of each task with the fewest CPUs that ends within a limit.

    A task for which every option is too long gets its fastest, with the fewest CPUs.
    """
    goal_s = np.maximum(runtime_s.min(axis=1), limit_s)
    return np.asarray(np.argmax(runtime_s <= goal_s[:, None], axis=1), np.intp)


def makespan_bound_s(runtime_s: Floats, cpus: Ints, cores: int) -> float:
    """Return a makespan that no schedule on so many cores can go below.

    It is at least the longest task's fastest time, and the core-hours of the canonical allotment
    over the cores.
    """

    def core_s(limit_s: float) -> float:
        option = allotment(runtime_s, limit_s)
        return float((np.take_along_axis(runtime_s * cpus, option[:, None], 1)).sum())

    # The core-hours of the canonical allotment do not increase with the makespan.
    low = float(runtime_s.min(axis=1).max())
    high = max(low, core_s(low) / cores)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if core_s(middle) <= middle * cores else (middle, high)
    return low


def makespan_s(runtime_s: Floats, cpus: Ints, nodes: int, cores_per_node: int) -> float:
    """Return when the last task ends if they are placed longest first.

    Parameters
    ----------
    runtime_s, cpus : ndarray, shape (tasks,)
        None needs more CPUs than a node has cores.
    """
    widths, seconds = cpus.tolist(), runtime_s.tolist()
    queues: dict[int, deque[tuple[int, int]]] = {}
    for rank, task in enumerate(np.argsort(-runtime_s, kind="stable").tolist()):
        queues.setdefault(widths[task], deque()).append((rank, task))
    free = np.full(nodes, cores_per_node)
    running: list[tuple[float, int, int]] = []
    now = 0.0
    while queues:
        most = free.max()
        if fitting := [width for width in queues if width <= most]:
            width = min(fitting, key=lambda w: queues[w][0])
            _, task = queues[width].popleft()
            if not queues[width]:
                del queues[width]
            # A task goes where it leaves the fewest cores.
            node = int(np.where(free >= width, free, np.inf).argmin())
            free[node] -= width
            heapq.heappush(running, (now + seconds[task], node, width))
            continue
        now = running[0][0]
        while running and running[0][0] <= now:
            _, node, width = heapq.heappop(running)
            free[node] += width
    return max((end_s for end_s, _, _ in running), default=0.0)
