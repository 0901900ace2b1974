"""Arrays of Slurm: tasks of a submission, or images of a recommendation, that share a request.

More arrays are more work for the scheduler and its users; fewer request more than tasks need.
Consecutive tasks, in the order of their time, form the groups with the least excess of requests
plus a fixed price for each array, by dynamic programming over distinct requests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ConfigError
from voxcast.files import write_text
from voxcast.jobs.script import MAX_TASKS, Job, command_script
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.allocation.offers import Offers
    from voxcast.allocation.recommendation import Recommendation

ARRAY_CORE_H = 1.0  # what one array more must save
GB_PER_CORE = 4.0  # memory that counts as much as a core
MAX_LISTED = 3  # tasks in a comment


@dataclass(frozen=True)
class Array:
    """Tasks of one array job, numbered from 1, longest first; the request suffices for each."""

    request: Request
    names: tuple[str, ...]


def arrays_of(
    requests: Mapping[str, Request],
    *,
    array_core_h: float = ARRAY_CORE_H,
    max_tasks: int = MAX_TASKS,
) -> list[Array]:
    """Return the arrays of tasks of the same partition, device, CPUs and GPUs.

    The longest come first, as then all end soonest.

    Parameters
    ----------
    requests : mapping of str to Request
        By name of the task.
    array_core_h : float
        Price of an array, in core-hours requested. With a price of 0 only equal requests share.
    """
    alike: dict[Request, list[str]] = {}
    for name, request in requests.items():
        alike.setdefault(replace(request, walltime_s=0.0, memory_bytes=0), []).append(name)
    arrays = []
    for kind, names in alike.items():
        names.sort(key=lambda name: (requests[name].walltime_s, requests[name].memory_bytes))
        sizes = np.array([(requests[n].walltime_s, requests[n].memory_bytes) for n in names])
        for start, end in _groups(sizes, kind.cpus, array_core_h):
            walltime_s, memory_bytes = sizes[start:end].max(axis=0).tolist()
            largest = replace(kind, walltime_s=walltime_s, memory_bytes=int(memory_bytes))
            for first in range(start, end, max_tasks):
                listed = names[first : min(first + max_tasks, end)]
                arrays.append(Array(largest, tuple(reversed(listed))))
    return sorted(arrays, key=lambda array: -array.request.walltime_s)


def core_h(request: Request) -> float:
    """Return the core-hours that a request reserves; 4 GB count as a core where that is more."""
    return float(_core_h(request.walltime_s, request.memory_bytes, request.cpus))


def _core_h(walltime_s: float, memory_bytes: Any, cpus: int) -> Any:
    return np.maximum(cpus, memory_bytes / 1e9 / GB_PER_CORE) * walltime_s / 3600


def _groups(
    sizes: NDArray[np.float64], cpus: int, array_core_h: float
) -> Iterator[tuple[int, int]]:
    """Yield first and last, exclusive, of each group of least cost, the longest tasks first.

    Parameters
    ----------
    sizes : ndarray, shape (tasks, 2)
        Time in seconds and memory in bytes, in increasing order.
    """
    levels, counts = np.unique(sizes, axis=0, return_counts=True)
    ends = np.concatenate([[0], counts.cumsum()])  # tasks below each level
    least, starts = np.zeros(len(ends)), np.zeros(len(ends), dtype=int)
    for end in range(1, len(ends)):
        # Groups of the levels start..end-1, for each start; of equally good ones the smallest.
        largest = np.maximum.accumulate(levels[:end, 1][::-1])[::-1]
        tasks = ends[end] - ends[:end]
        cost = least[:end] + tasks * _core_h(levels[end - 1, 0], largest, cpus) + array_core_h
        starts[end] = np.flatnonzero(cost <= cost.min())[-1]
        least[end] = cost[starts[end]]
    end = len(levels)
    while end:
        yield int(ends[starts[end]]), int(ends[end])
        end = int(starts[end])


def slurm_text(recommendation: Recommendation, *, as_script: bool = False) -> str:
    """Return the ``#SBATCH`` lines of one image, or the script of one array job for several.

    The text is empty without a request or a scheduler.

    Parameters
    ----------
    as_script : bool, optional
        Also for one image return a script.

    Raises
    ------
    ConfigError
        If there are too many images for one array.
    """
    images = range(len(recommendation.images))
    offered = recommendation.per_image if len(images) == 1 else recommendation.shared
    column = int(offered.choice.chosen[0])
    if column < 0 or recommendation.cluster.is_this_machine:
        return ""
    job = _job(recommendation, _request(offered, 0, column), column, images)
    if len(images) == 1 and not as_script:
        return "\n".join([*job.lines(), ""])
    return command_script(job, _paths(recommendation, images))


def write_array_jobs(recommendation: Recommendation, folder: Path) -> list[Path]:
    """Write a script for each array of similar requests, as a submission groups them.

    With a deadline or a budget no image requests more than its own, so only equal ones share.

    Returns
    -------
    list of Path
        The scripts, ``APP-1.sbatch`` and so on.

    Raises
    ------
    ConfigError
        If ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is not a folder", folder)
    offered = recommendation.per_image
    chosen = dict(enumerate(offered.choice.chosen.tolist()))
    requests = {
        str(n): _request(offered, n, column) for n, column in chosen.items() if column >= 0
    }
    is_limited = any(limit is not None for limit in vars(offered.limits).values())
    scripts = []
    arrays = arrays_of(requests, array_core_h=0.0 if is_limited else ARRAY_CORE_H)
    for number, array in enumerate(arrays, 1):
        images = [int(name) for name in array.names]
        job = _job(recommendation, array.request, chosen[images[0]], images)
        scripts.append(folder / f"{job.name}-{number}.sbatch")
        paths = _paths(recommendation, images)
        write_text(scripts[-1], command_script(replace(job, tasks=len(images)), paths))
    return scripts


def _request(offered: Offers, row: int, column: int) -> Request:
    candidate = offered.candidates[column]
    return Request(
        float(offered.walltime_s[row, column]), int(offered.memory_bytes[row, column]),
        candidate.cpus, candidate.gpus, candidate.partition.name, candidate.configuration.device,
    )  # fmt: skip


def _job(
    recommendation: Recommendation, request: Request, column: int, images: Sequence[int]
) -> Job:
    """Return the head of the script of one image, or of an array; it says what is uncertain."""
    from voxcast.allocation.recommendation import caveats, input_lines

    predictions = [recommendation.images[n].by_candidate[column] for n in images]
    policy, app = recommendation.policy, str(predictions[0]["app"])
    reasons = _by_task([caveats(p, policy.confidence) for p in predictions])
    if recommendation.unmeasured(column):
        reasons.append("an allocation that was never measured: time and risk are a guess")
    risk = f"at most {100 * policy.risk:.3g} % of such requests are too small"
    first = os.path.basename(recommendation.images[images[0]].image)  # noqa: PTH119
    more = f" and {len(images) - 1} more" if len(images) > 1 else ""
    candidate = recommendation.candidates[column]
    nodes = f"nodes of type {candidate.node.name}, partition {candidate.partition.name}"
    remarks = (
        f"{app} on {first}{more}: {candidate.configuration.label}; {nodes}",
        *_by_task([input_lines(prediction) for prediction in predictions]),
        *(reasons or [risk]),
        recommendation.machine(),
        "M of --mem is 2^20 bytes",
    )
    tasks = len(images) if len(images) > 1 else 0
    return Job(app, request, remarks, candidate.partition.memory_per_cpu, tasks)


def _by_task(lines_by_task: Sequence[Sequence[str]]) -> list[str]:
    """Return each line once, with the tasks of an array that it concerns, unless all."""
    tasks: dict[str, list[str]] = {}
    for number, lines in enumerate(lines_by_task, 1):
        for line in lines:
            tasks.setdefault(line, []).append(str(number))
    return [
        line if len(concerned) == len(lines_by_task)
        else f"task {', '.join(concerned[:MAX_LISTED])}"
        f"{' and more' if len(concerned) > MAX_LISTED else ''}: {line}"
        for line, concerned in tasks.items()
    ]  # fmt: skip


def _paths(recommendation: Recommendation, images: Sequence[int]) -> list[str]:
    return [os.path.abspath(recommendation.images[n].image) for n in images]  # noqa: PTH100
