"""States of the tasks of array jobs, from ``sacct`` or ``scontrol``, by job and number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from voxcast.errors import VoxcastError
from voxcast.history.imports.slurm_job import UNFINISHED, SlurmJob, slurm_state
from voxcast.jobs.state import TaskId, TaskState
from voxcast.quantities import slurm_bytes, slurm_seconds

SACCT_COLUMNS = (
    "JobID", "JobIDRaw", "State", "ExitCode", "ElapsedRaw", "TotalCPU", "MaxRSS", "ReqMem",
    "NodeList", "Submit", "Start", "End",
)  # fmt: skip
Notes = Callable[[TaskId], Sequence[str]]
_WAITING = re.compile(r"(\d+)_\[([^\]]*)\]")
_TASK_ID = re.compile(r"(\d+)_(\d+)(?:\.(.+))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_FIELD = re.compile(r"(\w+)=(\S*)")


def _no_notes(_: TaskId) -> Sequence[str]:
    return ()


def numbers(text: str) -> list[int]:
    """Return the numbers of tasks in the notation of Slurm.

    Examples
    --------
    >>> numbers("2,4-6,10-14:2%3")
    [2, 4, 5, 6, 10, 12, 14]
    """
    listed: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is not None:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            listed += range(first, last + 1, step)
    return listed


def from_sacct(text: str, notes: Notes = _no_notes) -> dict[TaskId, TaskState]:
    """Return the states in the lines of `voxcast.jobs.slurm.accounting`.

    Parameters
    ----------
    notes : callable, optional
        Returns what Slurm wrote into the log of a task that failed, see `SlurmJob.notes`.
    """
    return {key: state_of_lines(key, cells, notes) for key, cells in lines_by_task(text).items()}


def lines_by_task(text: str) -> dict[TaskId, list[dict[str, str]]]:
    """Return the cells of the line of each task, then the lines of its steps."""
    lines: dict[TaskId, list[dict[str, str]]] = {}
    for line in text.splitlines():
        cells = dict(zip(SACCT_COLUMNS, line.split("|"), strict=False))
        if SACCT_COLUMNS[-1] not in cells:  # printed by a wrapper of the site, or cut off
            continue
        cells["step"] = ""
        waiting = _WAITING.fullmatch(cells["JobID"])
        if waiting is not None:  # in one line, also where they were cancelled there
            lines |= {(waiting[1], number): [cells] for number in numbers(waiting[2])}
            continue
        match = _TASK_ID.fullmatch(cells["JobID"])
        if match is None:
            continue
        key = match[1], int(match[2])
        cells["step"] = match[3] or ""
        if not cells["step"]:
            lines[key] = [cells]  # of several attempts under one number the last counts
        elif key in lines:
            lines[key].append(cells)
    return lines


def from_scontrol(text: str, notes: Notes = _no_notes) -> dict[TaskId, TaskState]:
    """Return the states in lines of `controller_lines` of Slurm; see `from_sacct`."""
    states = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        job, number = fields.get("ArrayJobId", ""), fields.get("ArrayTaskId", "")
        if not job or "JobState" not in fields:
            continue
        for key in [(job, n) for n in numbers(number)]:
            slurm_job = SlurmJob(
                f"{job}_{number}", fields["JobState"], _seconds(fields.get("RunTime", "")) or 0.0
            )
            _set_exit(slurm_job, fields.get("ExitCode", ""))
            states[key] = _state(
                slurm_job, fields.get("NodeList", ""), fields.get("SubmitTime", ""),
                fields.get("StartTime", ""), fields.get("JobId", ""), partial(notes, key),
            )  # fmt: skip
    return states


def state_of_lines(key: TaskId, lines: Sequence[Mapping[str, str]], notes: Notes) -> TaskState:
    """Return the state by the lines of a task and its steps; see `from_sacct`."""
    job, *steps = lines
    slurm_job = SlurmJob(
        f"{key[0]}_{key[1]}", job["State"], _number(job["ElapsedRaw"]) or 0.0,
        cpu_s=_seconds(job["TotalCPU"]),
        mem_limit_bytes=_bytes(job["ReqMem"].rstrip("nc")),
        step_states=[step["State"] for step in steps if step["step"] != "extern"],
    )  # fmt: skip
    _set_exit(slurm_job, job["ExitCode"])
    for step in steps:
        slurm_job.add_step(_bytes(step["MaxRSS"]), None, None)
    return _state(
        slurm_job, job["NodeList"], job["Submit"], job["Start"], job["JobIDRaw"],
        partial(notes, key),
    )  # fmt: skip


def _state(
    job: SlurmJob,
    node: str,
    submitted_at: str,
    started_at: str,
    job_number: str,
    notes: Callable[[], Sequence[str]],
) -> TaskState:
    state = slurm_state(job.state)
    if state in ("FAILED", "CANCELLED"):  # a step above its memory is cancelled by Slurm
        job.notes = list(notes())
    outcome = None if state in UNFINISHED else job.outcome()
    return TaskState(
        state, outcome, job.runtime_s or 0.0, job.cpu_s, job.peak_bytes, job_number, node,
        submitted_at, started_at,
    )  # fmt: skip


def _set_exit(job: SlurmJob, text: str) -> None:
    status, _, signal = text.partition(":")
    if status.isdecimal() and signal.isdecimal():
        job.exit_status, job.signal = int(status), int(signal)


def cpu_seconds(text: str) -> dict[str, float]:
    """Return the CPU time of each running job and of each numbered step.

    Parameters
    ----------
    text : str
        Lines of `voxcast.jobs.slurm.cpu_times`.
    """
    totals: dict[str, float] = {}
    for line in text.splitlines():
        step, _, rest = line.partition("|")
        average, _, tasks = rest.partition("|")
        job, _, name = step.partition(".")
        if name != "extern":
            seconds = (_seconds(average) or 0.0) * (_number(tasks) or 1)
            totals[job] = totals.get(job, 0.0) + seconds
            if name.isdecimal():
                totals[step] = seconds
    return totals


def _seconds(text: str) -> float | None:
    try:
        return slurm_seconds(text) if text else None
    except VoxcastError:
        return None


def _bytes(text: str) -> int | None:
    try:
        return int(float(text)) if text.isdecimal() else slurm_bytes(text) if text else None
    except VoxcastError:
        return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
