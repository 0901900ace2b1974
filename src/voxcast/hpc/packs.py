"""Arrays that are to be submitted; planned jobs of several tasks become packed jobs.

Only first attempts are packed; a task that is asked for again has a job of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcast.hpc.arrays import grouped
from voxcast.hpc.attempts import Request

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from voxcast.hpc.plan import Plan
    from voxcast.hpc.tasks import Task

    Pack = tuple[tuple[str, ...], ...]  # names of tasks, by lane

STEP_MARGIN_S = 2.0  # for the start of a task in its job
SCRIPT_BYTES = 64 * 2**20  # for the script that starts the tasks


@dataclass(frozen=True)
class ReadyArray:
    """An array job to be submitted.

    Attributes
    ----------
    request : Request
        Enough for each of its jobs.
    names : tuple of str
        Of its tasks, numbered from 1.
    packs : tuple of tuple of tuple of int
        Numbers of tasks, by lane, by job; empty where each task is a job.
    excess_core_h : float
        What is asked because requests are shared, see `voxcast.hpc.arrays.Array`.
    """

    request: Request
    names: tuple[str, ...]
    packs: tuple[tuple[tuple[int, ...], ...], ...] = ()
    excess_core_h: float = 0.0

    @property
    def jobs(self) -> int:
        """Number of its jobs."""
        return len(self.packs) or len(self.names)


def ready_arrays(
    plan: Plan, requests: Mapping[str, Request], repeated: Container[str] = ()
) -> list[ReadyArray]:
    """Return the arrays of tasks whose next attempt is to be submitted.

    Planned jobs begin longest first, as the list scheduling for which they were planned.

    Parameters
    ----------
    requests : mapping of str to Request
        By name of the task.
    repeated : container of str
        Tasks that were tried before.
    """
    tasks = {task.name: task for task in plan.tasks if task.name in requests}
    packs = _packs(plan, {name: task for name, task in tasks.items() if name not in repeated},
                   requests)  # fmt: skip
    packed = {name for pack in packs for lane in pack for name in lane}
    names = [name for name in requests if name not in packed]
    kinds = [(tasks[name].partition, tasks[name].device) for name in names]
    order = 1 if plan.schedule is None else -1  # of tasks of an array, by time
    arrays = [
        ReadyArray(
            array.request, tuple(names[n] for n in array.members[::order]),
            excess_core_h=array.excess_core_h,
        )
        for array in grouped([requests[name] for name in names], kinds)
    ] + _packed_arrays(packs, tasks, requests)  # fmt: skip
    if plan.schedule is not None:
        arrays.sort(key=lambda array: -array.request.walltime_s)
    return arrays


def _packs(plan: Plan, tasks: Mapping[str, Task], requests: Mapping[str, Request]) -> list[Pack]:
    """Return the planned jobs with several of the tasks."""
    packs: list[Pack] = []
    for job in plan.schedule.jobs if plan.schedule is not None else ():
        lanes = (tuple(name for name in lane if name in tasks) for lane in job)
        packs += _within_limits(tuple(filter(None, lanes)), tasks, requests)
    return packs


def _packed_arrays(
    packs: Sequence[Pack], tasks: Mapping[str, Task], requests: Mapping[str, Request]
) -> list[ReadyArray]:
    kinds = []
    for pack in packs:
        first = tasks[pack[0][0]]
        kinds.append((first.partition, first.device, requests[first.name].cpus))
    arrays = []
    for array in grouped([_request(pack, tasks, requests) for pack in packs], kinds):
        chosen = [packs[n] for n in reversed(array.members)]
        names = tuple(name for pack in chosen for lane in pack for name in lane)
        numbers = {name: number for number, name in enumerate(names, 1)}
        numbered = (tuple(tuple(numbers[n] for n in lane) for lane in pack) for pack in chosen)
        arrays.append(ReadyArray(array.request, names, tuple(numbered), array.excess_core_h))
    return arrays


def _within_limits(
    pack: Pack, tasks: Mapping[str, Task], requests: Mapping[str, Request]
) -> Iterator[Pack]:
    """Yield a job, or its halves where it is longer than its partition allows; none of a task."""
    if sum(map(len, pack)) < 2:
        return
    longest_s = min(tasks[name].max_walltime_s for lane in pack for name in lane)
    if _request(pack, tasks, requests).walltime_s <= longest_s or max(map(len, pack)) == 1:
        yield pack
        return
    halves = [
        (lane[: math.ceil(len(lane) / 2)], lane[math.ceil(len(lane) / 2) :]) for lane in pack
    ]
    for half in zip(*halves, strict=True):
        yield from _within_limits(tuple(filter(None, half)), tasks, requests)


def _request(pack: Pack, tasks: Mapping[str, Task], requests: Mapping[str, Request]) -> Request:
    """Return what a job asks for.

    Its time holds if all its tasks take their upper bounds, and the largest of what a request is
    above the bound. So one task may use its whole request without harm to the others.
    """
    lanes_s = []
    for lane in pack:
        bounds_s = [_upper_s(tasks[name], requests[name]) for name in lane]
        excess_s = [requests[name].walltime_s - s for name, s in zip(lane, bounds_s, strict=True)]
        lanes_s.append(sum(bounds_s) + len(lane) * STEP_MARGIN_S + max(excess_s))
    # Each step rounds its memory up to whole MiB, which the job must have for all lanes at once.
    lanes_mib = [max(_mib(requests[name].memory_bytes) for name in lane) for lane in pack]
    memory = sum(lanes_mib) * 2**20
    cpus = sum(max(requests[name].cpus for name in lane) for lane in pack)
    return Request(max(lanes_s), memory + SCRIPT_BYTES, cpus)


def _mib(memory_bytes: int) -> int:
    return math.ceil(memory_bytes / 2**20)


def _upper_s(task: Task, request: Request) -> float:
    """Return the upper bound of the runtime; the request where it is not known."""
    upper_s = task.runtime_s_upper
    return min(upper_s, request.walltime_s) if math.isfinite(upper_s) else request.walltime_s
