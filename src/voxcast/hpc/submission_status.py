"""Where a submission stands, as numbers and as text."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

from voxcast.hpc.escalation import Stop
from voxcast.hpc.follower_lock import is_followed
from voxcast.hpc.job_states import TaskState
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from voxcast.hpc.executor import Executor
    from voxcast.hpc.submission import Submission
    from voxcast.hpc.submission_state import SubmissionState

ORDER = ("completed", "ended", "running", "waiting", "refused", "given up")
MOST_LISTED = 20


def current_states(
    state: SubmissionState, executor: Executor, *, with_steps: bool = True
) -> dict[str, TaskState]:
    """Return the states of the tasks with a live attempt, from one question; see `Executor`."""
    arrays = [state.arrays[n] for n in sorted({number for number, _ in state.live.values()})]
    submitted = [array for array in arrays if array.job]
    states = executor.states(submitted, with_steps=with_steps)
    keys = {name: (state.arrays[n].job, number) for name, (n, number) in state.live.items()}
    return {name: states[key] for name, key in keys.items() if key in states}


def states_here(submission: Submission, state: SubmissionState) -> dict[str, TaskState]:
    """Return the states of the tasks that run on this machine, as other processes can see them.

    They run in the process that follows the submission, and die with it. A task gets its folder
    when it starts; one that waits has none.
    """
    if not is_followed(submission.folder):
        return {}
    folders = {
        name: submission.files(array).attempt_folder(number)
        for name, (array, number) in state.live.items()
    }
    return {
        name: TaskState("RUNNING", None) for name, folder in folders.items() if folder.is_dir()
    }


def task_rows(
    submission: Submission, state: SubmissionState, current: Mapping[str, TaskState]
) -> list[dict[str, Any]]:
    """Return one row for each task, in the order of the plan."""
    rows = []
    for name, task in state.tasks.items():
        attempts = state.ended.get(name, [])
        step = state.next_step(name, submission.plan)
        status, reason = "waiting", ""
        if name in state.live:
            status = _live_status(current.get(name))
        elif isinstance(step, Stop):
            status, reason = ("completed" if step.completed else "given up"), step.reason
            if name in state.problems:
                status, reason = "given up", state.problems[name]
        elif name in state.problems:
            status, reason = "refused", state.problems[name]
        live = state.live.get(name)
        last = live or ((attempts[-1].array, attempts[-1].number) if attempts else None)
        rows.append({
            "task": name,
            "image": task.image,
            "status": status,
            "reason": reason,
            "job": f"{state.arrays[live[0]].job}_{live[1]}" if live else None,
            "attempts": [e.attempt.to_record() | e.facts for e in attempts],
            "predicted_runtime_s": _finite(task.runtime_s_median),
            "predicted_memory_bytes": _finite(task.memory_bytes_median),
            "log": str(submission.log(*last)) if last else None,
            "output": str(submission.out / name) if status == "completed" else None,
        })  # fmt: skip
    return rows


def _live_status(current: TaskState | None) -> str:
    """Return the status of an attempt that no submitter has settled yet."""
    if current is None:
        return "waiting"
    return "running" if current.is_running else "waiting" if current.outcome is None else "ended"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the number of tasks by status, and what all attempts used and asked for."""
    counts = Counter(row["status"] for row in rows)
    attempts = [attempt for row in rows for attempt in row["attempts"]]
    outcomes = Counter(attempt["outcome"] for attempt in attempts)
    hours = [(a["request"]["cpus"], a["request"]["walltime_s"], a["runtime_s"]) for a in attempts]
    return {
        "tasks": len(rows),
        "by_status": {status: counts[status] for status in ORDER if counts[status]},
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
        yield f"  those that ended are settled by what follows; if nothing does: `{command}`"
    yield f"  outputs in {submission.out}"
    unfinished = [row for row in rows if row["status"] in ("refused", "given up")]
    if unfinished:
        yield ""
        table = [("task", "ended as", "requested", "why")]
        table += [_row(row) for row in unfinished[:MOST_LISTED]]
        yield text_table(table, "<<<<")
        if len(unfinished) > MOST_LISTED:
            yield f"  and {len(unfinished) - MOST_LISTED} more; all with --json"
        if log := unfinished[0]["log"]:
            yield f"  log of the first: {log}"


def _row(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    if not row["attempts"]:
        return row["task"], row["status"], "", row["reason"]
    last = row["attempts"][-1]
    request = last["request"]
    requested = f"{format_seconds(request['walltime_s'])}, {format_bytes(request['memory_bytes'])}"
    return row["task"], last["outcome"].replace("_", " "), requested, row["reason"]


def _finite(value: float) -> float | None:
    return None if value != value else value
