"""Where a submission stands: a fold over its events, the same for every process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.jobs.escalate import Attempt, Stop, next_request
from voxcast.records import Outcome, Request, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxcast.jobs.submission import Plan
    from voxcast.jobs.task import Task

TaskId = tuple[str, int]  # job and number of the task
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING")


@dataclass(frozen=True)
class TaskState:
    """The state of a task of an array, as the executor reports it.

    Attributes
    ----------
    state : str
        The name of Slurm's state.
    outcome : str or None
        How it ended; None if it has not.
    runtime_s, cpu_s, peak_bytes : float, float, int or None
        None where unknown: ``scontrol`` has no CPU time and no memory.
    memory_method, cpu_method : str
        As in the history; empty for Slurm's own.
    job : str
        Number of the job that the task is; the first one of an array has the array's.
    """

    state: str
    outcome: Outcome | None
    runtime_s: float = 0.0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    job: str = ""
    node: str = ""
    submitted_at: str = ""
    started_at: str = ""
    memory_method: str = ""
    cpu_method: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.state in RUNNING


@dataclass
class SubmittedArray:
    """An array job; task N is ``names[N - 1]``. `job` is empty until it is submitted."""

    number: int
    request: Request
    names: tuple[str, ...]
    job: str = ""


@dataclass
class EndedAttempt:
    """An attempt that has ended, with the facts of the accounting."""

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
    stopping: dict[tuple[int, int], Outcome] = field(default_factory=dict)
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
            self.arrays[number] = SubmittedArray(
                number, of_fields(Request, event["request"]), names
            )
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
            self.stopping[int(event["array"]), int(event["number"])] = event["outcome"]
        elif kind == "ended":
            name = str(event["task"])
            attempt = of_fields(Attempt, event["attempt"])
            ended = EndedAttempt(
                int(event["array"]), int(event["number"]), attempt, dict(event["facts"])
            )
            self.live.pop(name, None)
            self.ended.setdefault(name, []).append(ended)
        elif kind == "unpublished":
            self.problems[str(event["task"])] = str(event["reason"])

    def attempts(self, name: str) -> list[Attempt]:
        """Return the attempts of a task that have ended, in order."""
        return [ended.attempt for ended in self.ended.get(name, [])]

    def job_of(self, name: str) -> str:
        """Return the job of the live attempt of a task, such as ``12_3``."""
        array, number = self.live[name]
        return f"{self.arrays[array].job}_{number}"

    def next_step(self, name: str, plan: Plan) -> Request | Stop | None:
        """Return the next request of a task, why it ends, or None while an attempt is live."""
        if name in self.live:
            return None
        task = self.tasks[name]
        return next_request(task.requests, self.attempts(name), task.limits(plan.limits))
