"""Where a submission stands: a fold over its events, the same for whoever continues it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.hpc.attempts import Attempt, Request
from voxcast.hpc.escalation import Stop, next_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.hpc.plan import Plan
    from voxcast.hpc.tasks import Task


@dataclass
class SubmittedArray:
    """An array job; task N is that of ``names[N - 1]``.

    Attributes
    ----------
    request : Request
        Of each job of the array.
    job : str
        Number of its job; empty until it is submitted.
    """

    number: int
    request: Request
    names: tuple[str, ...]
    job: str = ""


@dataclass
class EndedAttempt:
    """An attempt that has ended, with what accounting tells of it."""

    array: int
    number: int
    attempt: Attempt
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class SubmissionState:
    """Arrays, and attempts by task.

    Attributes
    ----------
    live : dict of str to (int, int)
        Tasks with an attempt that has not ended: its array, and its number in the array.
    problems : dict of str to str
        Why a task that completed has no outputs, or why its request was refused.
    stopping : dict of (int, int) to str
        Attempts that were cancelled by us, with the outcome that this means.
    last_array : int
        The highest number that an array has had.
    """

    tasks: dict[str, Task]
    arrays: dict[int, SubmittedArray] = field(default_factory=dict)
    ended: dict[str, list[EndedAttempt]] = field(default_factory=dict)
    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    stopping: dict[tuple[int, int], str] = field(default_factory=dict)
    last_array: int = 0

    @classmethod
    def of(cls, plan: Plan, events: Iterable[Mapping[str, Any]]) -> SubmissionState:
        """Return the state after ``events``."""
        state = cls({task.name: task for task in plan.tasks})
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event; events of a later release are left out."""
        kind = event.get("event")
        if kind == "prepared":
            number, names = int(event["array"]), tuple(event["tasks"])
            request = Request.from_record(event["request"])
            self.arrays[number] = SubmittedArray(number, request, names)
            self.last_array = max(self.last_array, number)
            for n, name in enumerate(names, 1):
                self.live[name] = number, n
                self.problems.pop(name, None)
        elif kind == "submitted":
            self.arrays[int(event["array"])].job = str(event["job"])
        elif kind in ("withdrawn", "refused"):
            array = self.arrays.pop(int(event["array"]))
            for name in array.names:
                self.live.pop(name, None)
                if kind == "refused":
                    self.problems[name] = str(event["reason"])
        elif kind == "stopping":
            self.stopping[int(event["array"]), int(event["number"])] = str(event["outcome"])
        elif kind == "ended":
            name = str(event["task"])
            self.live.pop(name, None)
            self.ended.setdefault(name, []).append(
                EndedAttempt(
                    int(event["array"]), int(event["number"]),
                    Attempt.from_record(event["attempt"]), dict(event["facts"]),
                )
            )  # fmt: skip
            if event.get("problem"):  # as earlier releases wrote it
                self.problems[name] = str(event["problem"])
        elif kind == "unpublished":
            self.problems[str(event["task"])] = str(event["reason"])

    def attempts(self, name: str) -> list[Attempt]:
        """Return the attempts of a task that have ended, in order."""
        return [ended.attempt for ended in self.ended.get(name, [])]

    def next_step(self, name: str, plan: Plan) -> Request | Stop | None:
        """Return what a task asks for next, why it ends, or None while an attempt is live."""
        if name in self.live:
            return None
        task = self.tasks[name]
        return next_request(task.ladder, self.attempts(name), task.bounds(plan.bounds))
