"""Where a submission stands: a fold over its events, the same for every process.

And its plan and its state as numbers and as text.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.files import is_empty
from voxcast.jobs.script import arrays_of, core_h
from voxcast.jobs.task import Array, Attempt, Limits, Stop, Task, next_request
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import Outcome, Request, as_fields, of_fields
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from voxcast.jobs.submission import Plan, Submission

ORDER = ("completed", "ended", "running", "waiting", "refused", "given up")
FINAL = frozenset({"completed", "refused", "given up"})
MOST_LISTED = 20
DEFAULT_SAMPLING_S = 30.0  # of memory, by Slurm's accounting
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

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks of arrays."""

    def raise_requests(self, array: Array, numbers: Sequence[int], request: Request) -> list[int]:
        """Give tasks of an array more time and memory; return those that still waited for it.

        Raises
        ------
        VoxcastError
            If the scheduler refuses.
        """
        raise NotImplementedError

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

    @property
    def peak_bytes(self) -> float | None:
        """Its peak of memory; None where it ended before it was sampled."""
        sampling_s = self.facts.get("memory_sampling_s", DEFAULT_SAMPLING_S)
        is_sampled = sampling_s is not None and self.attempt.runtime_s >= sampling_s
        return (self.facts.get("peak_bytes") or None) if is_sampled else None


@dataclass
class SubmissionState:
    """Arrays, and attempts by task; where workers draw the tasks, also attempts of workers.

    Attributes
    ----------
    live : dict of str to (int, int)
        Tasks and workers with an attempt that has not ended: its array, and its number in it.
    problems : dict of str to str
        Why a task that completed has no outputs, or why its request was refused.
    last_array : int
        The highest number that an array has had.
    records : dict of str to str
        The record of each cell that is on record.
    runs : dict of str to str
        The record of each run of a worker that was taken in; empty for a failure.
    parts : dict of str to list of str
        Parts by the task that was split.
    raised : dict of (int, int) to Request
        Requests that were raised in the queue, by array and number.
    """

    limits: Limits
    tasks: dict[str, Task]
    arrays: dict[int, Array] = field(default_factory=dict)
    ended: dict[str, list[EndedAttempt]] = field(default_factory=dict)
    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    last_array: int = 0
    records: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    raised: dict[tuple[int, int], Request] = field(default_factory=dict)

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
        elif kind == "raised":
            request = of_fields(Request, event["request"])
            self.raised |= {(place[0], number): request for number in event["numbers"]}
        elif kind == "retried":
            self.ended.pop(name, None)

    def attempts(self, name: str) -> list[Attempt]:
        """Return the attempts of a task that have ended, in order."""
        return [ended.attempt for ended in self.ended.get(name, [])]

    def request_of(self, array: int, number: int) -> Request:
        """Return the request of an attempt that has not ended."""
        return self.raised.get((array, number), self.arrays[array].request)

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


def planned_arrays(plan: Plan) -> list[Array]:
    """Return the arrays of the first attempts."""
    return arrays_of({task.name: task.requests.first for task in plan.tasks})


def expected(plan: Plan) -> dict[str, Any]:
    """Return the requests and the cost of the first attempts.

    ``runtime_s`` is the predicted time of all tasks, one after the other. ``expected_failures``
    is the sum of the risks where all are known.
    """
    arrays, tasks = planned_arrays(plan), plan.tasks
    usd_per_s = [task.usd_per_hour / 3600 for task in tasks]
    known_s = np.nan_to_num([task.runtime_s_median for task in tasks])
    risks = [task.prediction.risk if task.prediction else None for task in tasks]
    return {
        "tasks": len(tasks),
        "arrays": len(arrays),
        "requested_core_h": sum(len(array.names) * core_h(array.request) for array in arrays),
        "usd_bound": float(np.dot(usd_per_s, [t.requests.first.walltime_s for t in tasks])),
        "usd_median": float(np.dot(usd_per_s, known_s)),
        "expected_failures": None if None in risks else sum(map(float, filter(None, risks))),
        "runtime_s": float(known_s.sum()),
    }


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of ``voxcast submit --dry-run``."""
    total, arrays = expected(plan), planned_arrays(plan)
    cluster = f" on {plan.cluster}" if plan.cluster else ""
    in_arrays = counted(total["arrays"], "array")
    yield f"{plan.app.name}{cluster}: {counted(total['tasks'], 'task')} in {in_arrays}"
    table = [("array", "tasks", "partition", "CPUs", "GPUs", "time", "memory")]
    for number, array in enumerate(arrays[:MOST_LISTED], 1):
        request = array.request
        table.append((
            str(number), str(len(array.names)), request.partition, str(request.cpus),
            str(request.gpus), format_seconds(request.walltime_s),
            format_bytes(request.memory_bytes),
        ))  # fmt: skip
    yield text_table(table, ">><>>>>")
    if len(arrays) > MOST_LISTED:
        yield f"  and {len(arrays) - MOST_LISTED} more arrays"
    yield f"  requests {total['requested_core_h']:.3g} core-hours; 4 GB count as a core"
    if total["usd_bound"]:
        usd, bound = total["usd_median"], total["usd_bound"]
        yield f"  costs {usd:.2f} USD, at most {bound:.2f} if all run to their limits"
    if (failures := total["expected_failures"]) is None:
        yield "  how many first requests will be too small is unknown: some are not calibrated"
    else:
        yield f"  of the first requests at most {failures:.2g} are expected to be too small"


def current_states(
    state: SubmissionState, executor: Executor, *, with_steps: bool = True
) -> dict[str, TaskState]:
    """Return the states of the tasks with a live attempt, from one call; see `Executor`."""
    arrays = [state.arrays[n] for n in sorted({number for number, _ in state.live.values()})]
    submitted = [array for array in arrays if array.job]
    states = executor.states(submitted, with_steps=with_steps) if submitted else {}
    keys = {name: (state.arrays[n].job, number) for name, (n, number) in state.live.items()}
    return {name: states[key] for name, key in keys.items() if key in states}


def states_seen(submission: Submission, state: SubmissionState) -> dict[str, TaskState]:
    """Return what runs or waits in a queue now, as a process that does not follow it sees it.

    Raises
    ------
    RunError
        If Slurm does not answer.
    """
    from voxcast.jobs.claim import is_followed
    from voxcast.jobs.slurm import SlurmExecutor
    from voxcast.jobs.worker import HELD, Tickets, key_of

    running = TaskState("RUNNING", None)
    if submission.plan.draw is not None:
        return {key_of(run): running for run in Tickets.of(submission).names(HELD)}
    if submission.executor == "slurm":
        return current_states(state, SlurmExecutor(submission), with_steps=False)
    # Tasks here run in the process that follows, and die with it; one that waits has no folder.
    return {
        name: running
        for name, (array, number) in state.live.items()
        if is_followed(submission.folder)
        and submission.files(array).attempt_folder(number).is_dir()
    }


def statuses(
    state: SubmissionState, current: Mapping[str, TaskState]
) -> dict[str, tuple[str, str]]:
    """Return where each task is, one of `ORDER`, and why; a part counts with its whole.

    Parameters
    ----------
    current : mapping of str to TaskState
        What runs or waits in a queue now.
    """
    names = [name for name, task in state.tasks.items() if not task.part_of]
    return {name: _status(state, name, current.get(name)) for name in names}


def counts(state: SubmissionState, current: Mapping[str, TaskState]) -> Counter[str]:
    """Return the number of tasks by status, see `statuses`."""
    return Counter(status for status, _ in statuses(state, current).values())


def _status(state: SubmissionState, name: str, current: TaskState | None) -> tuple[str, str]:
    if current is not None and current.outcome is not None:
        return "ended", ""  # and not settled yet
    if name in state.live or current is not None:
        return ("running" if current is not None and current.is_running else "waiting"), ""
    step, problem = state.next_step(name), state.problems.get(name, "")
    if isinstance(step, Stop):
        is_completed = step.completed and not problem
        return ("completed" if is_completed else "given up"), problem or step.reason
    return ("refused", problem) if problem else ("waiting", "")


def task_rows(
    submission: Submission, state: SubmissionState, current: Mapping[str, TaskState]
) -> list[dict[str, Any]]:
    """Return one row for each task, in the order of the plan; a part counts with its whole."""
    rows = []
    for name, (status, reason) in statuses(state, current).items():
        task, attempts, live = state.tasks[name], state.ended.get(name, []), state.live.get(name)
        predicted = submission.predicted(task)
        last = live or ((attempts[-1].array, attempts[-1].number) if attempts else None)
        output = submission.out / state.records.get(name, name)
        rows.append({
            "task": name,
            "image": task.image,
            "status": status,
            "reason": reason,
            "job": state.job_of(name) if live else None,
            "attempts": [as_fields(e.attempt) | e.facts for e in attempts],
            "predicted_runtime_s": predicted and _finite(predicted.runtime_s),
            "predicted_memory_bytes": predicted and _finite(predicted.peak_rss_bytes),
            "log": str(submission.log(*last)) if last and last[0] else None,
            "output": str(output) if status == "completed" else None,
        })  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the number of tasks by status, and all that attempts used and requested."""
    by_status = Counter(row["status"] for row in rows)
    attempts = [attempt for row in rows for attempt in row["attempts"]]
    outcomes = Counter(attempt["outcome"] for attempt in attempts)
    hours = [(a["request"]["cpus"], a["request"]["walltime_s"], a["runtime_s"]) for a in attempts]
    return {
        "tasks": len(rows),
        "by_status": {status: by_status[status] for status in ORDER if by_status[status]},
        "attempts": len(attempts),
        "by_outcome": dict(sorted(outcomes.items())),
        "requested_core_h": sum(cpus * walltime_s for cpus, walltime_s, _ in hours) / 3600,
        "used_core_h": sum(cpus * used for cpus, _, used in hours) / 3600,
        "usd": sum(attempt["usd"] for attempt in attempts),
    }


def status_record(submission: Submission, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object of ``voxcast status --json``."""
    return summary(rows) | {"folder": str(submission.folder), "rows": rows}


def text_lines(submission: Submission, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of ``voxcast status``."""
    total = summary(rows)
    states = ", ".join(f"{n} {status}" for status, n in total["by_status"].items())
    yield f"{submission.plan.app.name}, {counted(total['tasks'], 'task')}: {states}"
    if total["attempts"]:
        outcomes = ", ".join(
            f"{n} {outcome.replace('_', ' ')}" for outcome, n in total["by_outcome"].items()
        )
        yield f"  {counted(total['attempts'], 'attempt')} ended: {outcomes}"
        usd = f", {total['usd']:.2f} USD" if total["usd"] else ""
        requested, used = total["requested_core_h"], total["used_core_h"]
        yield f"  requested {requested:.3g} core-hours and used {used:.3g}{usd}"
    if "ended" in total["by_status"]:
        command = f"voxcast submit --out {shlex.quote(str(submission.folder))}"
        yield f"  ended tasks are settled by the process that follows; if none does: `{command}`"
    yield f"  outputs in {submission.out}"
    if empty := [row for row in rows if row["output"] and is_empty(Path(row["output"]))]:
        tasks = counted(len(empty), "completed task")
        yield (
            f"  {tasks} wrote nothing below {{out}}, which is a folder: see {empty[0]['log']}, "
            f"and the command in conf/app/{submission.plan.app.name}.yaml"
        )
    unfinished = [row for row in rows if row["status"] in ("refused", "given up")]
    if unfinished:
        yield ""
        table = [("task", "ended as", "requested", "why")]
        yield text_table(table + [_row(row) for row in unfinished[:MOST_LISTED]], "<<<<")
        if len(unfinished) > MOST_LISTED:
            yield f"  and {len(unfinished) - MOST_LISTED} more; all with --json"
        if log := unfinished[0]["log"]:
            yield f"  log of the first: {log}"


def _row(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    if not row["attempts"]:
        return row["task"], row["status"], "", row["reason"]
    last = row["attempts"][-1]
    requested = of_fields(Request, last["request"]).label
    return row["task"], last["outcome"].replace("_", " "), requested, row["reason"]


def _finite(value: float) -> float | None:
    return None if value != value else value
