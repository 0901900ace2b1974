"""Requests that are learned while a submission runs.

A plan tends to be off by about the same factor for all of its tasks: the nodes are slower than the
measured ones, or a release of the application needs more memory. Each attempt that ends narrows
that factor down. Needs are counted relative to the plan, and `OnlineSizer` chooses the requests of
least expected waste among them. The first request covers the share of tasks that the policy
promises, as by split conformal prediction, or all of the needs so far while these are few.

Everything is learned again from the events of the submission, so no other file is needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.allocation.requests.online import Objective, OnlineSizer
from voxcast.jobs.task import LEAST_GROWTH, RETRY_GROWTH, growing

if TYPE_CHECKING:
    from voxcast.jobs.state import EndedAttempt
    from voxcast.jobs.task import RequestSequence, Task
    from voxcast.records import Outcome, Prediction

LEAST_RUNS = 5  # that have completed, before a request departs from the plan
LEAST_WALLTIME_S = 60.0  # Slurm counts whole minutes
MARGIN = 1.1  # above the largest need, while too few have completed for the promised share
UNIT = 1e6  # which a need as planned counts as: the sizer rounds up to whole seconds and bytes


class LearnedRequests:
    """Requests of tasks, from the attempts of other tasks in the same partition.

    Parameters
    ----------
    predicted : callable
        Returns the prediction of a task, with memory as the accounting states it, or None.
    """

    def __init__(self, predicted: Callable[[Task], Prediction | None]) -> None:
        self._predicted = predicted
        self._times, self._memories = _Needs("time"), _Needs("memory")

    def add(self, task: Task, ended: EndedAttempt) -> None:
        """Learn from an attempt that has ended."""
        attempt, predicted = ended.attempt, self._predicted(task)
        if predicted is None or not attempt.runtime_s > 0:
            return
        kind, outcome = _kind(task), attempt.outcome
        time = attempt.runtime_s / task.requests.walltimes_s[0]
        if outcome in ("completed", "timeout"):
            self._times.add(kind, task.name, time, time, outcome)
        memory = math.nan
        if outcome == "out_of_memory":
            memory = attempt.request.memory_bytes / task.requests.memories_bytes[0]
        elif outcome == "completed" and ended.peak_bytes is not None:
            memory = ended.peak_bytes / predicted.peak_rss_bytes_upper
        if not math.isnan(memory):
            self._memories.add(kind, task.name, memory, time, outcome)

    def sequence(self, task: Task) -> RequestSequence:
        """Return the requests of a task; its plan, until enough other tasks have completed."""
        planned, predicted = task.requests, self._predicted(task)
        if predicted is None:
            return planned
        kind, share = _kind(task), predicted.confidence
        walltimes_s = self._times.amounts(planned.walltimes_s, kind, share)
        memories_bytes = self._memories.amounts(planned.memories_bytes, kind, share)
        longer = [max(walltime_s, LEAST_WALLTIME_S) for walltime_s in walltimes_s]
        return replace(
            planned,
            walltimes_s=_within(longer, task.max_walltime_s) if longer else planned.walltimes_s,
            memories_bytes=tuple(map(int, _within(memories_bytes, task.max_memory_bytes)))
            or planned.memories_bytes,
        )

    def watch(self, running: Iterable[tuple[Task, float]]) -> None:
        """Take in how long tasks have run that have not ended: they need more than that."""
        so_far: dict[str, float] = defaultdict(float)
        for task, runtime_s in running:
            time = runtime_s / task.requests.walltimes_s[0]
            so_far[_kind(task)] = max(so_far[_kind(task)], time)
        self._times.watch(so_far)


class _Needs:
    """What tasks needed of one resource, relative to their plan."""

    def __init__(self, objective: Objective) -> None:
        self._objective, self._sizer = objective, OnlineSizer(objective=objective)
        self._completed: dict[str, dict[str, float]] = defaultdict(dict)
        self._killed: dict[str, dict[str, float]] = defaultdict(dict)
        self._places: dict[str, float] = {}
        self._so_far: Mapping[str, float] = {}
        self._cheapest: dict[str, list[float]] = {}  # the same for a thousand tasks that wait

    def add(self, kind: str, name: str, need: float, time: float, outcome: Outcome) -> None:
        """Add the need of a task; a killed attempt is a lower bound."""
        # By its features the sizer knows which killed attempts a completed one replaces.
        features = {"task": self._places.setdefault(name, float(len(self._places)))}
        self._sizer.update(
            kind, features, peak_rss_bytes=need * UNIT, runtime_s=time * UNIT, outcome=outcome
        )
        self._killed[kind].pop(name, None)
        (self._completed if outcome == "completed" else self._killed)[kind][name] = need
        self._cheapest.pop(kind, None)

    def watch(self, so_far: Mapping[str, float]) -> None:
        """Take in the most that a task of each kind has used which still runs."""
        self._so_far = so_far

    def amounts(self, planned: Sequence[float], kind: str, share: float) -> list[float]:
        """Return the amounts to request; the first covers a share of the needs so far.

        There are none until enough tasks have completed, unless most were killed.
        """
        completed = sorted(self._completed[kind].values())
        needs = sorted([*completed, *self._killed[kind].values()])
        killed = len(needs) - len(completed)
        if len(completed) < LEAST_RUNS and killed <= max(len(completed), 1):
            return []
        later = [amount / planned[0] for amount in planned]
        if completed[-1:] == needs[-1:]:
            beyond_all = MARGIN * needs[-1]
        else:
            beyond_all = next((r for r in later if r > needs[-1]), LEAST_GROWTH * needs[-1])
        first = beyond_all
        if len(completed) >= LEAST_RUNS:
            later = self._cheapest_of(kind)
            rank = math.ceil((len(needs) + 1) * share)
            covering = needs[rank - 1] if rank <= len(needs) else beyond_all
            first = max(covering, MARGIN * self._so_far.get(kind, 0.0), later[0])
        return [planned[0] * rung for rung in growing(first, later, 0.0, RETRY_GROWTH)]

    def _cheapest_of(self, kind: str) -> list[float]:
        """Return the sequence of least expected waste, relative to the plan."""
        if kind not in self._cheapest:
            self._cheapest[kind] = [
                (request.walltime_s if self._objective == "time" else request.memory_bytes) / UNIT
                for request in self._sizer.requests(kind, {})
            ]
        return self._cheapest[kind]


def _within(amounts: Sequence[float], most: float) -> tuple[float, ...]:
    """Return amounts, in whole units, up to a largest one."""
    return tuple(sorted({float(math.ceil(min(amount, most))) for amount in amounts}))


def _kind(task: Task) -> str:
    return f"{task.requests.partition}/{task.requests.device}"
