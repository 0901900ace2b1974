"""Where a submission stands: a fold over its events, the same for every process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from voxcast.jobs.task import Array, Attempt, Limits, Stop, Task, next_request
from voxcast.records import Outcome, Request, of_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from voxcast.jobs.submission import Plan

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
    runtime_s : float
        So far, or until it ended.
    job : str
        Number of the job that the task is; the first one of an array has the array's.
    facts : dict
        For the record, as far as they are known: CPU time and peak of memory with their methods,
        if not Slurm's own, node, and times of submission and start. ``scontrol`` has no CPU time
        and no memory.
    """

    state: str
    outcome: Outcome | None
    runtime_s: float = 0.0
    job: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.state in RUNNING


# Of a task that was never started, and will not be: it is submitted again, and no attempt counts.
NOT_STARTED = TaskState("NOT_STARTED", "node_failure")


class Executor:
    """Runs the arrays of a submission: Slurm, or this machine."""

    def submit(self, array: Array) -> str:
        """Start an array, whose script is written, and return the number of its job."""
        raise NotImplementedError

    def states(
        self, arrays: Sequence[Array], *, with_steps: bool = True
    ) -> dict[TaskId, TaskState]:
        """Return the states of the tasks of arrays; unknown ones are left out.

        The peak of memory, and whether it ended a task, are in the steps of its job. They may be
        left out where it takes long to look them up.
        """
        raise NotImplementedError

    def find(self, array: Array) -> str:
        """Return the job of an array that is not on record; empty if not found."""
        return ""

    def stalled(self, running: Mapping[TaskId, TaskState]) -> list[TaskId]:
        """Return the running tasks that have used no CPU for too long."""
        return []

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks of arrays."""

    def machine(self, folder: Path) -> dict[str, str]:
        """Return `voxcast.jobs.script.machine_of` an attempt, given its folder."""
        return {}

    @property
    def memory_sampling_s(self) -> float | None:
        """The time between two samples of memory; None if it is only read at the end."""
        return 0.0


@dataclass
class EndedAttempt:
    """An attempt that has ended, with the facts of the accounting, or of the worker that made it.

    A worker's attempt is of array 0.
    """

    array: int
    number: int
    attempt: Attempt
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class SubmissionState:
    """Arrays, and attempts by task; where workers draw the tasks, also attempts of workers.

    Attributes
    ----------
    live : dict of str to (int, int)
        Tasks and workers with an attempt that has not ended: its array, and its number in it.
    problems : dict of str to str
        Why a task that completed has no outputs, or why its request was refused.
    stopping : dict of (int, int) to str
        Attempts that were cancelled by us, with the outcome that this means.
    last_array : int
        The highest number that an array has had.
    records : dict of str to str
        The record of each cell that is on record.
    runs : dict of str to str
        The record of each run of a worker that was taken in; empty for a failure.
    parts : dict of str to list of str
        Parts by the task that was split.
    """

    limits: Limits
    tasks: dict[str, Task]
    arrays: dict[int, Array] = field(default_factory=dict)
    ended: dict[str, list[EndedAttempt]] = field(default_factory=dict)
    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    stopping: dict[tuple[int, int], Outcome] = field(default_factory=dict)
    last_array: int = 0
    records: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, events: Iterable[Mapping[str, Any]]) -> SubmissionState:
        """Return the state after ``events``."""
        state = cls(plan.limits, {task.name: task for task in plan.tasks})
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event; events of a later release are left out."""
        kind, name = event.get("event"), str(event.get("task"))
        place = int(event.get("array", 0)), int(event.get("number", 0))
        if kind == "prepared":
            request, names = of_fields(Request, event["request"]), tuple(event["tasks"])
            self.arrays[place[0]] = Array(request, names, place[0])
            self.last_array = max(self.last_array, place[0])
            self.live |= {listed: (place[0], n) for n, listed in enumerate(names, 1)}
            for listed in names:
                self.problems.pop(listed, None)
        elif kind == "submitted":
            self.arrays[place[0]].job = str(event["job"])
        elif kind == "withdrawn" and event.get("task"):
            self.live.pop(name, None)
        elif kind in ("withdrawn", "refused"):
            for listed in self.arrays.pop(place[0]).names:
                del self.live[listed]
                if kind == "refused":
                    self.problems[listed] = str(event["reason"])
        elif kind == "stopping":
            self.stopping[place] = event["outcome"]
        elif kind == "ended":
            self.live.pop(name, None)
            ended = EndedAttempt(*place, of_fields(Attempt, event["attempt"]), event["facts"])
            self.ended.setdefault(name, []).append(ended)
            if run := event.get("run"):
                self.runs[run] = event["record"]
            if event.get("record"):
                self.records[name] = event["record"]
        elif kind == "unpublished":
            self.problems[name] = str(event["reason"])
        elif kind == "split":
            parts = [of_fields(Task, fields) for fields in event["parts"]]
            self.parts[name] = [part.name for part in parts]
            self.tasks |= {part.name: part for part in parts}
        elif kind == "retried":
            self.ended.pop(name, None)

    def attempts(self, name: str) -> list[Attempt]:
        """Return the attempts of a task that have ended, in order."""
        return [ended.attempt for ended in self.ended.get(name, [])]

    def job_of(self, name: str) -> str:
        """Return the job of the live attempt of a task, such as ``12_3``."""
        array, number = self.live[name]
        return f"{self.arrays[array].job}_{number}"

    def workers(self) -> list[str]:
        """Return the workers whose jobs have not ended."""
        return [name for name in self.live if name not in self.tasks]

    def waiting(self) -> dict[str, Request]:
        """Return the requests of tasks without an attempt that is live, and not at their end."""
        steps = {name: self.next_step(name) for name in self.tasks}
        return {name: step for name, step in steps.items() if isinstance(step, Request)}

    def next_step(self, name: str) -> Request | Stop | None:
        """Return the next request of a task, why it ends, or None while it is under way.

        So is a task with a live attempt, or with live parts.
        """
        if name in self.live:
            return None
        if name in self.records:
            return Stop(completed=True)
        if name in self.parts:
            steps = map(self.next_step, self.parts[name])
            return next((s for s in steps if isinstance(s, Stop) and not s.completed), None)
        task = self.tasks[name]
        return next_request(task.requests, self.attempts(name), task.limits(self.limits))
