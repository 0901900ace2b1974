"""Arrays of Slurm: tasks of a submission, or images of a recommendation, that share a request.

More arrays are more work for the scheduler and its users; fewer request more than tasks need.
Consecutive tasks, in the order of their time, form the groups with the least excess of requests
plus a fixed price for each array, by dynamic programming over distinct requests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from voxcast.allocation.offers import Offers, Predictions, offers
from voxcast.allocation.recommendation import caveats, input_lines
from voxcast.errors import ConfigError
from voxcast.files import write_text
from voxcast.jobs.script import MAX_TASKS, Job, image_list
from voxcast.records import Request

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from voxcast.allocation.recommendation import Recommendation

ARRAY_CORE_H = 1.0  # what one array more must save
GB_PER_CORE = 4.0  # memory that counts as much as a core
MAX_LISTED = 3  # tasks in a comment
MOST_LEVELS = 200  # distinct requests that are kept apart


@dataclass(frozen=True)
class Array:
    """Tasks of one array job.

    Attributes
    ----------
    request : Request
        Enough for each of its tasks.
    names : tuple of str
        Names of its tasks, numbered from 1, longest first.
    excess_core_h : float
        Requested beyond the tasks' own requests; 4 GB count as a core.
    """

    request: Request
    names: tuple[str, ...]
    excess_core_h: float


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
        Price of an array, in core-hours requested.
    """
    alike: dict[Hashable, list[str]] = {}
    for name, request in requests.items():
        kind = request.partition, request.device, request.cpus, request.gpus
        alike.setdefault(kind, []).append(name)
    arrays = []
    for names in alike.values():
        for group in _groups(requests, names, array_core_h):
            largest = _largest([requests[name] for name in group])
            for start in range(0, len(group), max_tasks):
                chunk = group[start : start + max_tasks]
                excess = sum(core_h(largest) - core_h(requests[name]) for name in chunk)
                arrays.append(Array(largest, tuple(reversed(chunk)), excess))
    return sorted(arrays, key=lambda array: -array.request.walltime_s)


def _largest(requests: Sequence[Request]) -> Request:
    first = requests[0]
    walltime_s = max(request.walltime_s for request in requests)
    memory_bytes = max(request.memory_bytes for request in requests)
    return replace(first, walltime_s=walltime_s, memory_bytes=memory_bytes)


def core_h(request: Request) -> float:
    """Return the core-hours that a request reserves; 4 GB count as a core where that is more."""
    cores = max(request.cpus, request.memory_bytes / 1e9 / GB_PER_CORE)
    return cores * request.walltime_s / 3600


def _groups(
    requests: Mapping[str, Request], names: Sequence[str], array_core_h: float
) -> list[list[str]]:
    """Return the groups of least cost among consecutive tasks."""
    by_level = _levels(requests, names)
    levels = list(by_level)
    walltime_s = np.array([level[0] for level in levels])
    memory = np.array([level[1] for level in levels])
    counts = np.array([len(by_level[level]) for level in levels])
    least = np.zeros(len(levels) + 1)
    starts = np.zeros(len(levels) + 1, dtype=int)
    cpus = requests[names[0]].cpus
    for end in range(1, len(levels) + 1):
        # Groups of the levels start..end-1, for each start.
        largest = np.maximum.accumulate(memory[:end][::-1])[::-1]
        tasks = np.cumsum(counts[:end][::-1])[::-1]
        reserved_core_h = tasks * _core_h(walltime_s[end - 1], largest, cpus)
        cost = least[:end] + reserved_core_h + array_core_h
        starts[end] = int(cost.argmin())
        least[end] = cost[starts[end]]
    groups: list[list[str]] = []
    end = len(levels)
    while end:
        chosen = levels[starts[end] : end]
        groups.insert(0, [name for level in chosen for name in by_level[level]])
        end = int(starts[end])
    return groups


def _core_h(
    walltime_s: float, memory_bytes: NDArray[np.float64], cpus: int
) -> NDArray[np.float64]:
    cores = np.maximum(cpus, memory_bytes / 1e9 / GB_PER_CORE)
    return np.asarray(cores * walltime_s / 3600, dtype=np.float64)


def _levels(
    requests: Mapping[str, Request], names: Sequence[str]
) -> dict[tuple[float, int], list[str]]:
    """Return the tasks by their request, in increasing order; of many, by ranges of requests."""
    ordered = sorted(names, key=lambda n: (requests[n].walltime_s, requests[n].memory_bytes))
    levels: dict[tuple[float, int], list[str]] = {}
    for name in ordered:
        levels.setdefault((requests[name].walltime_s, requests[name].memory_bytes), []).append(
            name
        )
    if len(levels) > MOST_LEVELS:
        levels = {}
        for part in np.array_split(np.array(ordered), MOST_LEVELS):
            tasks = part.tolist()
            largest = _largest([requests[name] for name in tasks])
            levels.setdefault((largest.walltime_s, largest.memory_bytes), []).extend(tasks)
    return levels


@dataclass(frozen=True)
class ArrayGroup:
    """Images that share a request, and so an array job.

    Attributes
    ----------
    images : tuple of int
        Indices of the images.
    column : int
        Index of the candidate.
    offers : Offers
        Offers of the shared request, with a row for each image of the group.
    """

    images: tuple[int, ...]
    column: int
    offers: Offers


def array_groups(recommendation: Recommendation) -> list[ArrayGroup]:
    """Return groups of all images with a request; each stays within the hard limits.

    Images are grouped where their requests are of one configuration and node type, and differ by
    less than a factor of two in time and memory.
    """
    offered = recommendation.per_image
    members: dict[tuple[int, int, int], list[int]] = {}
    for image, column in enumerate(offered.choice.chosen.tolist()):
        if column >= 0:
            sizes = offered.walltime_s[image, column], offered.memory_bytes[image, column]
            key = (column, *(int(np.ceil(np.log2(size))) for size in sizes))
            members.setdefault(key, []).append(image)
    return [
        group
        for (column, *_), images in sorted(members.items())
        for group in _within_limits(offered, images, column)
    ]


def _within_limits(offered: Offers, images: Sequence[int], column: int) -> Iterator[ArrayGroup]:
    """Yield the images as one group, or as several where a shared request exceeds a limit."""
    rows = np.array(images)
    predictions = Predictions(*(values[rows] for values in vars(offered.predictions).values()))
    shared = offers(
        predictions,
        offered.candidates,
        offered.cluster,
        offered.policy,
        offered.limits,
        shared=True,
    )
    allowed = shared.fits & (shared.excess <= 1)
    if len(images) == 1 or (len(images) <= MAX_TASKS and allowed[:, column].all()):
        yield ArrayGroup(tuple(images), column, shared)
        return
    # The longest half apart from the rest, which may then share a shorter request.
    ordered = rows[np.argsort(offered.walltime_s[rows, column], kind="stable")].tolist()
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        yield from _within_limits(offered, half, column)


def slurm_text(recommendation: Recommendation) -> str:
    """Return the ``#SBATCH`` lines of one image, or the script of one array job for several.

    The text is empty without a request.

    Raises
    ------
    ConfigError
        If there are too many images for one array.
    """
    if len(recommendation.images) == 1:
        request = _request_of_image(recommendation)
        return "" if request is None else "\n".join(request.lines()) + "\n"
    column = int(recommendation.shared.choice.chosen[0])
    if column < 0:
        return ""
    images = range(len(recommendation.images))
    request = _request(recommendation, recommendation.shared, 0, column, images)
    return request.array_script(_paths(recommendation, images))


def job_script(recommendation: Recommendation) -> str:
    """Return the script of a job on one image; empty without a request or a scheduler.

    Parameters
    ----------
    recommendation : Recommendation
        For one image.
    """
    if recommendation.cluster.is_this_machine:
        return ""
    request = _request_of_image(recommendation)
    return "" if request is None else request.job_script()


def write_array_jobs(recommendation: Recommendation, folder: Path) -> list[Path]:
    """Write a script and a list of images for each group of similar requests.

    Returns
    -------
    list of Path
        The scripts, ``APP-1.sbatch`` and so on, beside ``APP-1.txt``.

    Raises
    ------
    ConfigError
        If ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError("is not a folder", folder)
    scripts = []
    for number, group in enumerate(array_groups(recommendation), 1):
        request = _request(recommendation, group.offers, 0, group.column, group.images)
        script = folder / f"{request.name}-{number}.sbatch"
        listed = script.with_suffix(".txt").absolute()
        paths = _paths(recommendation, group.images)
        write_text(listed, image_list(paths))
        write_text(script, request.array_script(paths, listed))
        scripts.append(script)
    return scripts


def _request_of_image(recommendation: Recommendation) -> Job | None:
    """Return the request of the only image; None if no candidate qualifies."""
    offered = recommendation.per_image
    column = int(offered.choice.chosen[0])
    return None if column < 0 else _request(recommendation, offered, 0, column, [0])


def _request(
    recommendation: Recommendation,
    offered: Offers,
    row: int,
    column: int,
    images: Sequence[int],
) -> Job:
    predictions = [recommendation.images[n].by_candidate[column] for n in images]
    policy, app = recommendation.policy, str(predictions[0]["app"])
    names = [os.path.basename(recommendation.images[n].image) for n in images]  # noqa: PTH119
    inputs = _by_task([input_lines(prediction) for prediction in predictions], names)
    reasons = _by_task([caveats(p, policy.confidence) for p in predictions], names)
    if recommendation.unmeasured(column):
        reasons.append("an allocation that was never measured: time and risk are a guess")
    risk = f"at most {100 * policy.risk:.3g} % of such requests are too small"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    candidate = recommendation.candidates[column]
    nodes = f"nodes of type {candidate.node.name}, partition {candidate.partition.name}"
    remarks = [
        f"{app} on {names[0]}{more}: {candidate.configuration.label}; {nodes}",
        *inputs,
        *(reasons or [risk]),
        recommendation.machine(),
        "M of --mem is 2^20 bytes",
    ]
    request = Request(
        float(offered.walltime_s[row, column]), int(offered.memory_bytes[row, column]),
        candidate.cpus, candidate.gpus, candidate.partition.name, candidate.configuration.device,
    )  # fmt: skip
    return Job(app, request, tuple(remarks), candidate.partition.memory_per_cpu)


def _by_task(lines_by_task: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return each line once, with the tasks of an array it is true of, unless of all."""
    tasks: dict[str, list[int]] = {}
    for n, lines in enumerate(lines_by_task):
        for line in lines:
            tasks.setdefault(line, []).append(n)
    return [
        line if len(concerned) == len(names) else f"{_tasks(concerned, names)}: {line}"
        for line, concerned in tasks.items()
    ]


def _tasks(concerned: Sequence[int], names: Sequence[str]) -> str:
    listed = ", ".join(f"{n + 1} ({names[n]})" for n in concerned[:MAX_LISTED])
    more = len(concerned) - MAX_LISTED
    noun = "task" if len(concerned) == 1 else "tasks"
    return f"{noun} {listed}{f' and {more} more' if more > 0 else ''}"


def _paths(recommendation: Recommendation, images: Sequence[int]) -> list[str]:
    return [os.path.abspath(recommendation.images[n].image) for n in images]  # noqa: PTH100
