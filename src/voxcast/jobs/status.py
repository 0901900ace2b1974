"""The requests of a plan and the state of a submission, as numbers and as text."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.jobs.script import arrays_of, core_h
from voxcast.jobs.state import TaskState
from voxcast.jobs.task import Stop
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import Request, as_fields, of_fields
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxcast.jobs.state import Executor, SubmissionState
    from voxcast.jobs.submission import Plan, Submission
    from voxcast.jobs.task import Array

ORDER = ("completed", "ended", "running", "waiting", "refused", "given up")
FINAL = frozenset({"completed", "refused", "given up"})
MOST_LISTED = 20


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
        yield "  how many first requests are too small is not known: some are not calibrated"
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
    from voxcast.jobs.slurm import SlurmExecutor

    if not state.live:
        return {}
    if submission.executor == "local":
        return _states_here(submission, state)
    return current_states(state, SlurmExecutor(submission), with_steps=False)


def _states_here(submission: Submission, state: SubmissionState) -> dict[str, TaskState]:
    """Return the states of the tasks that run on this machine, as other processes can see them.

    They run in the process that follows the submission, and die with it. A task gets its folder
    when it starts; one that waits has none.
    """
    from voxcast.jobs.claim import is_followed

    is_alive = is_followed(submission.folder)
    return {
        name: TaskState("RUNNING", None)
        for name, (array, number) in state.live.items()
        if is_alive and submission.files(array).attempt_folder(number).is_dir()
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
        command = f"voxcast submit --resume {shlex.quote(str(submission.folder))}"
        yield f"  ended tasks are settled by the process that follows; if none does: `{command}`"
    yield f"  outputs in {submission.out}"
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
