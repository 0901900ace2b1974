"""Requests that are raised while a submission runs.

A plan tends to be too small by about the same factor for all of its tasks: the nodes are slower
than the measured ones, or a release of the application needs more memory. Once tasks have shown
that, others get the factor too, before they fail for the same reason. It covers the share of tasks
that the policy promises, as by split conformal prediction, but no more than the largest need of a
task that completed, unless most were killed: one that never ends must not raise all others.

Requests are never lowered. The first tasks to end are the quick ones, and on published runs a
submission that learned from them had more tasks killed than its plan.

Everything is learned again from the events of the submission, so no other file is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.jobs.task import LEAST_GROWTH

if TYPE_CHECKING:
    from voxcast.jobs.state import EndedAttempt
    from voxcast.jobs.task import Task
    from voxcast.records import Prediction, Request

LEAST_TASKS = 2  # that needed more than planned
MARGIN = 1.1  # above the largest need of a task that completed


class LearnedRequests:
    """Requests of tasks, from the attempts of other tasks in the same partition.

    Parameters
    ----------
    predicted : callable
        Returns the prediction of a task, with memory as the accounting states it, or None.
    """

    def __init__(self, predicted: Callable[[Task], Prediction | None]) -> None:
        self._predicted = predicted
        self._times, self._memories = _Needs(), _Needs()
        self._largest_bytes: dict[str, int] = defaultdict(int)  # that an attempt was given

    def add(self, task: Task, ended: EndedAttempt) -> None:
        """Learn from an attempt that has ended."""
        attempt, predicted = ended.attempt, self._predicted(task)
        if predicted is None or not attempt.runtime_s > 0:
            return
        kind, is_completed = _kind(task), attempt.outcome == "completed"
        largest = max(self._largest_bytes[kind], attempt.request.memory_bytes)
        self._largest_bytes[kind] = largest
        if is_completed or attempt.outcome == "timeout":
            time = attempt.runtime_s / task.requests.walltimes_s[0]
            self._times.add(kind, task.name, time, is_completed=is_completed)
        if attempt.outcome == "out_of_memory":
            lacked = attempt.request.memory_bytes / task.requests.memories_bytes[0]
            self._memories.add(kind, task.name, lacked, is_completed=False)
        elif is_completed and ended.peak_bytes and predicted.peak_rss_bytes_upper > 0:
            memory = ended.peak_bytes / predicted.peak_rss_bytes_upper
            self._memories.add(kind, task.name, memory, is_completed=True)

    def first(self, task: Task) -> Request:
        """Return the first request of a task: its plan, raised by what other tasks needed."""
        request, predicted = task.requests.first, self._predicted(task)
        if predicted is None:
            return request
        kind, share = _kind(task), predicted.confidence
        longer, larger = (needs.factor(kind, share) for needs in (self._times, self._memories))
        most_bytes = task.max_memory_bytes
        if most_bytes == math.inf:  # no node is known to have more than an attempt was given
            most_bytes = self._largest_bytes[kind]
        return replace(
            request,
            walltime_s=_raised(request.walltime_s, longer, task.max_walltime_s),
            memory_bytes=int(_raised(request.memory_bytes, larger, most_bytes)),
        )


class _Needs:
    """What tasks needed of one resource, relative to their plan."""

    def __init__(self) -> None:
        self._completed: dict[str, dict[str, float]] = defaultdict(dict)
        self._killed: dict[str, dict[str, float]] = defaultdict(dict)
        self._factors: dict[tuple[str, float], float] = {}  # of all tasks that wait

    def add(self, kind: str, name: str, need: float, *, is_completed: bool) -> None:
        """Add the need of a task; a killed attempt is a lower bound."""
        self._killed[kind].pop(name, None)
        (self._completed if is_completed else self._killed)[kind][name] = need
        self._factors.clear()

    def factor(self, kind: str, share: float) -> float:
        """Return by what a plan is to be raised for the share of tasks to fit; at least 1."""
        if (kind, share) not in self._factors:
            self._factors[kind, share] = self._factor(kind, share)
        return self._factors[kind, share]

    def _factor(self, kind: str, share: float) -> float:
        completed = self._completed[kind].values()
        needs = sorted([*completed, *self._killed[kind].values()])
        if sum(need > 1 for need in completed) + len(self._killed[kind]) < LEAST_TASKS:
            return 1.0
        largest = MARGIN * max(completed, default=0.0)
        if len(self._killed[kind]) > len(completed):
            largest = max(largest, LEAST_GROWTH * max(self._killed[kind].values()))
        rank = math.ceil((len(needs) + 1) * share)
        return max(1.0, min(needs[rank - 1], largest) if rank <= len(needs) else largest)


def _raised(planned: float, factor: float, most: float) -> float:
    """Return an amount that is raised by a factor, or as planned where that is too much."""
    amount = float(math.ceil(planned * factor))
    return amount if planned < amount <= most and factor > 1 else planned


def _kind(task: Task) -> str:
    return f"{task.requests.partition}/{task.requests.device}"
