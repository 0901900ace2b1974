"""Tasks that share an array job, and so one request: the largest of the group.

More arrays are more work for the scheduler and its users; fewer request more than tasks need.
Consecutive tasks, in the order of their time, form the groups with the least excess of requests
plus a fixed price for each array, by dynamic programming over distinct requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.jobs.script import MAX_TASKS
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

ARRAY_CORE_H = 1.0  # what one array more must save
GB_PER_CORE = 4.0  # memory that counts as much as a core
MOST_LEVELS = 200  # distinct requests that are kept apart


@dataclass(frozen=True)
class Array:
    """Tasks of one array job.

    Attributes
    ----------
    request : Request
        Enough for each of them.
    members : tuple of int
        Their indices.
    excess_core_h : float
        Requested beyond the tasks' own requests; 4 GB count as a core.
    """

    request: Request
    members: tuple[int, ...]
    excess_core_h: float


@dataclass(frozen=True)
class ReadyArray:
    """An array job to be submitted.

    Attributes
    ----------
    request : Request
        Enough for each of its tasks.
    names : tuple of str
        Of its tasks, numbered from 1, longest first.
    excess_core_h : float
        See `Array`.
    """

    request: Request
    names: tuple[str, ...]
    excess_core_h: float


def ready_arrays(requests: Mapping[str, Request]) -> list[ReadyArray]:
    """Return the arrays of tasks that are to be submitted, by name of the task.

    The longest come first, as then all end soonest.
    """
    names = list(requests)
    kinds = [(request.partition, request.device) for request in requests.values()]
    arrays = [
        ReadyArray(
            array.request, tuple(names[n] for n in reversed(array.members)), array.excess_core_h
        )
        for array in grouped(list(requests.values()), kinds)
    ]
    return sorted(arrays, key=lambda array: -array.request.walltime_s)


def grouped(
    requests: Sequence[Request],
    kinds: Sequence[Hashable],
    *,
    array_core_h: float = ARRAY_CORE_H,
    max_tasks: int = MAX_TASKS,
) -> list[Array]:
    """Return arrays of tasks of the same kind, CPUs and GPUs.

    Parameters
    ----------
    requests : sequence of Request
        Of each task.
    kinds : sequence
        What tasks of an array must have in common beside the request, such as the partition.
    array_core_h : float
        Price of an array, in core-hours asked.
    """
    members: dict[Hashable, list[int]] = {}
    for index, (request, kind) in enumerate(zip(requests, kinds, strict=True)):
        members.setdefault((kind, request.cpus, request.gpus), []).append(index)
    return [
        Array(request, tuple(chunk), _excess_core_h(request, [requests[n] for n in chunk]))
        for indices in members.values()
        for group in _groups(requests, indices, array_core_h)
        for request in [_largest([requests[n] for n in group])]
        for chunk in _chunks(group, max_tasks)
    ]


def _chunks(group: Sequence[int], size: int) -> list[Sequence[int]]:
    return [group[start : start + size] for start in range(0, len(group), size)]


def _largest(requests: Sequence[Request]) -> Request:
    first = requests[0]
    walltime_s = max(request.walltime_s for request in requests)
    memory_bytes = max(request.memory_bytes for request in requests)
    return replace(first, walltime_s=walltime_s, memory_bytes=memory_bytes)


def _excess_core_h(request: Request, requests: Sequence[Request]) -> float:
    each = core_h(request)
    return sum(each - core_h(alone) for alone in requests)


def core_h(request: Request) -> float:
    """Return the core-hours that a request reserves; 4 GB count as a core where that is more."""
    cores = max(request.cpus, request.memory_bytes / 1e9 / GB_PER_CORE)
    return cores * request.walltime_s / 3600


def _groups(
    requests: Sequence[Request], indices: Sequence[int], array_core_h: float
) -> list[list[int]]:
    """Return the groups of least cost among consecutive tasks."""
    by_level = _levels(requests, indices)
    levels = list(by_level)
    walltime_s = np.array([level[0] for level in levels])
    memory = np.array([level[1] for level in levels])
    counts = np.array([len(by_level[level]) for level in levels])
    least = np.zeros(len(levels) + 1)
    starts = np.zeros(len(levels) + 1, dtype=int)
    cpus = requests[indices[0]].cpus
    for end in range(1, len(levels) + 1):
        # Groups of the levels start..end-1, for each start.
        largest = np.maximum.accumulate(memory[:end][::-1])[::-1]
        tasks = np.cumsum(counts[:end][::-1])[::-1]
        reserved_core_h = tasks * _core_h(walltime_s[end - 1], largest, cpus)
        cost = least[:end] + reserved_core_h + array_core_h
        starts[end] = int(cost.argmin())
        least[end] = cost[starts[end]]
    groups: list[list[int]] = []
    end = len(levels)
    while end:
        chosen = levels[starts[end] : end]
        groups.insert(0, [index for level in chosen for index in by_level[level]])
        end = int(starts[end])
    return groups


def _core_h(
    walltime_s: float, memory_bytes: NDArray[np.float64], cpus: int
) -> NDArray[np.float64]:
    cores = np.maximum(cpus, memory_bytes / 1e9 / GB_PER_CORE)
    return np.asarray(cores * walltime_s / 3600, dtype=np.float64)


def _levels(
    requests: Sequence[Request], indices: Sequence[int]
) -> Mapping[tuple[float, int], list[int]]:
    """Return the tasks by their request, in increasing order; of many, by ranges of requests."""
    ordered = sorted(indices, key=lambda n: (requests[n].walltime_s, requests[n].memory_bytes, n))
    exact: dict[tuple[float, int], list[int]] = {}
    for n in ordered:
        exact.setdefault((requests[n].walltime_s, requests[n].memory_bytes), []).append(n)
    if len(exact) <= MOST_LEVELS:
        return exact
    merged: dict[tuple[float, int], list[int]] = {}
    for part in np.array_split(np.array(ordered), MOST_LEVELS):
        tasks = part.tolist()
        largest = _largest([requests[n] for n in tasks])
        merged.setdefault((largest.walltime_s, largest.memory_bytes), []).extend(tasks)
    return merged
