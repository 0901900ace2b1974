"""Jobs of several tasks: short tasks with as many cores share a job, long ones have their own.

A job has lanes. Tasks of a lane run one after the other, lanes run side by side.
"""

from __future__ import annotations

import functools
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Lanes = tuple[tuple[int, ...], ...]

STEP_S = 0.3  # what the start of a task in a running job takes


@dataclass(frozen=True)
class Jobs:
    """Tasks by job and lane.

    Attributes
    ----------
    lanes : tuple of tuple of tuple of int
        Indices of tasks, by lane, by job; each task is in one lane.
    cores : ndarray of int, shape (jobs,)
        Of all lanes of a job together.
    """

    lanes: tuple[Lanes, ...]
    cores: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.lanes)

    @functools.cached_property
    def _flat(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Tasks in the order of lanes, where each lane starts, and where each job's lanes do."""
        lanes = [lane for job in self.lanes for lane in job]
        tasks = np.fromiter((task for lane in lanes for task in lane), np.intp)
        lane_starts = np.cumsum([0, *map(len, lanes[:-1])]).astype(np.intp)
        job_starts = np.cumsum([0, *map(len, self.lanes[:-1])]).astype(np.intp)
        return tasks, lane_starts, job_starts

    def runtime_s(self, task_s: ArrayLike) -> NDArray[np.float64]:
        """Return how long each job takes whose tasks take ``task_s``, shape (jobs,)."""
        tasks, lane_starts, job_starts = self._flat
        if not len(tasks):
            return np.zeros(0)
        lane_s = np.add.reduceat(np.asarray(task_s, float)[tasks] + STEP_S, lane_starts)
        return np.maximum.reduceat(lane_s, job_starts)


def alone(cores: Sequence[int] | NDArray[np.intp]) -> Jobs:
    """Return a job for each task."""
    return Jobs(tuple(((n,),) for n in range(len(cores))), np.asarray(cores, np.intp))


def packed(
    task_s: NDArray[np.float64],
    cores: NDArray[np.intp],
    kinds: Sequence[Hashable],
    target_s: float,
    cores_per_job: int | None = None,
) -> Jobs:
    """Return jobs that take about ``target_s``, or as long as their longest task.

    Parameters
    ----------
    task_s, cores : ndarray, shape (tasks,)
        Predicted seconds, and what each occupies.
    kinds : sequence
        What tasks of a job must have in common beside the number of cores.
    cores_per_job : int, optional
        Jobs of whole nodes: as many lanes as fit. By default a job has one lane.
    """
    by_kind: dict[tuple[Hashable, int], list[int]] = {}
    for n in np.argsort(-task_s, kind="stable").tolist():
        by_kind.setdefault((kinds[n], int(cores[n])), []).append(n)
    lanes: list[Lanes] = []
    widths: list[int] = []
    for (_, width), tasks in by_kind.items():
        count = 1 if cores_per_job is None else cores_per_job // width
        start = 0
        while start < len(tasks):
            goal_s, sum_s, end = count * max(target_s, float(task_s[tasks[start]])), 0.0, start
            while end < len(tasks) and (end == start or sum_s + task_s[tasks[end]] <= goal_s):
                sum_s += float(task_s[tasks[end]]) + STEP_S
                end += 1
            lanes.append(_balanced(tasks[start:end], task_s, count))
            widths.append(cores_per_job or width)
            start = end
    return Jobs(tuple(lanes), np.array(widths, np.intp))


def _balanced(tasks: Sequence[int], task_s: NDArray[np.float64], count: int) -> Lanes:
    """Return lanes, each task in the one that is shortest so far."""
    if count == 1:
        return (tuple(tasks),)
    lanes: list[list[int]] = [[] for _ in range(min(count, len(tasks)))]
    ends = [(0.0, lane) for lane in range(len(lanes))]
    for task in tasks:
        end_s, lane = heapq.heappop(ends)
        lanes[lane].append(task)
        heapq.heappush(ends, (end_s + float(task_s[task]), lane))
    return tuple(map(tuple, lanes))
