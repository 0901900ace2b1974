"""JSON of ``sacct --json`` in the formats of Slurm 22.05 and of 23.02 and newer."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from voxcast.errors import TableError
from voxcast.history.imports.file_records import FileRecords, ImportedRun, NotARunError
from voxcast.runs.delimited import unpacked
from voxcast.history.imports.slurm_job import KILLED_BY_SLURM, ROOT, SlurmJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SOURCE = "sacct"
MAX_UNPACKED_BYTES = 1 << 31  # all of it is held, as objects of ten times that
_MIB = 2**20
_FORMAT_ERRORS = (TypeError, ValueError, AttributeError, KeyError, OverflowError, OSError)
Value = TypeVar("Value")
_Exit = tuple[int | None, int]  # exit status and signal


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read the jobs; the line of a remark is the job's number in the list.

    Raises
    ------
    TableError
        If the file is not such JSON.
    """
    records = FileRecords(SOURCE, path)
    try:
        with unpacked(path, MAX_UNPACKED_BYTES) as (stream, _):
            content = json.loads(stream.read())
    except (ValueError, RecursionError, MemoryError) as error:
        raise TableError(f"is not JSON: {str(error)[:80]}", path) from error
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list):
        raise TableError("has no list `jobs`", path, "write it with `sacct --json`")
    for number, job in enumerate(jobs, start=1):
        records.record(number, partial(_checked, job, app))
    return records


def _checked(job: Any, app: str | None) -> ImportedRun:
    try:
        return _imported_run(job, app)
    except _FORMAT_ERRORS as error:
        raise TableError(f"not a job in the format of sacct: {str(error)[:80]}") from error


def _imported_run(job: dict[str, Any], app: str | None) -> ImportedRun:
    time, unread = job["time"], _Unread()
    state = _first(job["state"]["current"])
    start, end, submitted = (
        unread.tried(f"time.{name}", partial(_timestamp, time.get(name)))
        for name in ("start", "end", "submission")
    )
    limit, elapsed = (
        unread.tried(f"time.{name}", partial(_number, time.get(name)))
        for name in ("limit", "elapsed")
    )
    job_tres = job.get("tres") or {}
    allocated, requested = (
        unread.tried(f"tres.{name}", partial(_tres, job_tres.get(name))) or {}
        for name in ("allocated", "requested")
    )
    steps = unread.tried("steps", partial(_steps, job)) or []
    code = unread.tried("exit_code", partial(_exit, job, state, steps))
    exit_status, signal = code or (None, 0)
    if not start and state in ("PENDING", "CANCELLED"):
        raise NotARunError(f"job {_job_id(job)} is {state} and was never run")
    if elapsed is None and start is not None and end is not None:
        elapsed = end - start
    slurm_job = SlurmJob(
        job_id=_job_id(job),
        state=state,
        runtime_s=elapsed,
        name=str(job.get("name") or ""),
        exit_status=exit_status,
        signal=signal,
        cpu_s=unread.tried("time.total", partial(_cpu_seconds, time, steps)),
        time_limit_s=None if limit is None else 60.0 * limit,
        mem_limit_bytes=(allocated.get("mem") or requested.get("mem") or 0) * _MIB or None,
        cpus=allocated.get("cpu") or requested.get("cpu") or 0,
        gpus=allocated.get("gres/gpu", 0),
        nodes="" if job.get("nodes") in (None, "None assigned") else str(job["nodes"]),
        partition=str(job.get("partition") or ""),
        cluster=str(job.get("cluster") or ""),
        user=str(job.get("user") or (job.get("association") or {}).get("user") or ""),
        account=str(job.get("account") or ""),
        submitted_at=_utc(submitted),
        start=_utc(start),
        start_s=int(start) if start else None,
        end_s=int(end) if end else None,
        notes=unread.tried("comment", partial(_notes, job)) or [],
        step_states=[_step_state(s) for s in steps if not _is_extern(s)],
    )
    for step in steps:
        largest, total = (
            unread.tried("steps.tres", partial(_step_memory, step, name))
            for name in ("max", "total")
        )
        slurm_job.add_step(largest, total, unread.tried("steps.tasks", partial(_tasks, step)))
    slurm_job.unread = [*unread.reasons, *slurm_job.unread]
    return slurm_job.imported_run(app)


def _step_state(step: Mapping[str, Any]) -> str:
    """Return the state of a step as text has it; JSON names apart who ended it."""
    state = _first(step.get("state"))
    by_root = state == "CANCELLED" and step.get("kill_request_user") == ROOT
    return KILLED_BY_SLURM if by_root else state


class _Unread:
    """The fields of a job that could not be read."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def tried(self, name: str, read: Callable[[], Value]) -> Value | None:
        """Return what ``read`` returns; None if the field has another format, which is listed."""
        try:
            return read()
        except _FORMAT_ERRORS as error:
            self.reasons.append(f"field {name}: {type(error).__name__}: {str(error)[:80]}")
            return None


def _steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    steps = job.get("steps") or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise TypeError("not a list of steps")
    return steps


def _cpu_seconds(time: dict[str, Any], steps: list[dict[str, Any]]) -> float | None:
    """Return the CPU time of a job; where its own is 0, as in Slurm 22.05, that of its steps."""
    of_steps = [_seconds((step.get("time") or {}).get("total")) or 0 for step in steps]
    return _seconds(time.get("total")) or sum(of_steps)


def _step_memory(step: dict[str, Any], statistic: str) -> int | None:
    """Return the memory of the ``max`` task of a step, or of all in ``total``, in bytes."""
    # Slurm lists memory used by the tasks under "requested", written data under "consumed".
    entries = (step.get("tres") or {}).get("requested", {}).get(statistic) or []
    amounts = [_int(entry.get("count")) for entry in entries if entry.get("type") == "mem"]
    return max((amount for amount in amounts if amount), default=None)


def _tasks(step: dict[str, Any]) -> int | None:
    return _int((step.get("tasks") or {}).get("count"))


def _exit(job: dict[str, Any], state: str, steps: list[dict[str, Any]]) -> _Exit:
    """Return exit status and signal; of a failed job without any, those of its steps.

    Slurm 22.05 writes success as the exit code of a job, and of a batch step, that exits with
    another. A signal that ends a step of srun does not end the job; it is the exit status of srun.
    """
    exits = [_exit_of(job)]
    if state != "FAILED":
        return exits[0]
    for step in steps:
        if not _is_extern(step):
            status, signal = _exit_of(step)
            exits.append((status, signal) if _is_batch(step) else (status or signal, 0))
    return next(((status, signal) for status, signal in exits if status or signal), (None, 0))


def _exit_of(entry: dict[str, Any]) -> _Exit:
    exit_code = entry.get("exit_code") or {}
    signal = exit_code.get("signal") or {}
    number = _int(signal.get("id", signal.get("signal_id"))) or 0
    return _int(exit_code.get("return_code")), number


def _timestamp(value: Any) -> float | None:
    seconds = _number(value)
    _utc(seconds)  # checks the range
    return seconds


def _utc(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else ""


def _is_extern(step: dict[str, Any]) -> bool:
    """Whether the step is Slurm's extern step, which does not belong to the job."""
    return "extern" in str((step.get("step") or {}).get("name"))


def _is_batch(step: dict[str, Any]) -> bool:
    """Whether the step is the script of the job."""
    return (step.get("step") or {}).get("name") == "batch"


def _job_id(job: dict[str, Any]) -> str:
    """Return the job number as in the text format: ``12_3`` (array) or ``12+1`` (het job)."""
    array, het = job.get("array") or {}, job.get("het") or {}
    task = _int(array.get("task_id"))
    if _int(array.get("job_id")) and task is not None:
        return f"{_int(array['job_id'])}_{task}"
    if _int(het.get("job_id")):
        return f"{_int(het['job_id'])}+{_int(het.get('job_offset')) or 0}"
    number = _int(job["job_id"])
    if number is None:
        raise TableError("no job_id")
    return str(number)


def _number(value: Any) -> float | None:
    if isinstance(value, dict):  # since 23.02
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a finite number")
    return number


def _int(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _seconds(value: Any) -> float | None:
    if not isinstance(value, dict):
        return _number(value)
    return (_number(value.get("seconds")) or 0) + (_number(value.get("microseconds")) or 0) / 1e6


def _tres(entries: Any) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for entry in entries or []:
        name = str(entry.get("type"))
        if name == "gres":
            name = f"gres/{str(entry.get('name')).partition(':')[0]}"
        amounts[name] = max(amounts.get(name, 0), _int(entry.get("count")) or 0)
    return amounts


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) and value else value)


def _notes(job: dict[str, Any]) -> list[str]:
    comments = job.get("comment")
    texts = list(comments.values()) if isinstance(comments, dict) else [comments]
    texts.append(job["state"].get("reason"))
    return [str(text) for text in texts if text and text != "None"]
