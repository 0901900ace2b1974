"""Text of ``sacct -P`` with any columns: job lines, each followed by the lines of its steps."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports import sacct_json
from voxcast.runs.delimited import Cells, finite, integer
from voxcast.history.imports.file_records import FileRecords, ImportedRun
from voxcast.runs.delimited import columns_of, opening
from voxcast.history.imports.slurm_job import SlurmJob
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "sacct"
ABSENT = frozenset({"", "unknown", "none", "none assigned", "invalid", "n/a", "(null)"})
NO_LIMIT = {"unlimited", "partition_limit"}
NOTES = ("comment", "admincomment", "systemcomment", "reason")
ADVICE = "write it with `sacct -P --format=JobID,JobName,State,ElapsedRaw,...`, header included"
# At least one column of each group.
NEEDED = (("JobID", "JobIDRaw"), ("State",), ("ElapsedRaw", "Elapsed", "End"))
logger = logging.getLogger(__name__)
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read a file written by ``sacct -P`` or ``sacct --json``.

    A job line and the step lines that follow it are one record, listed under the job's line.
    With ``-D`` a requeued job has one job line per attempt; each attempt is a run.

    Raises
    ------
    TableError
        If the file is neither.
    """
    if opening(path).lstrip().startswith(b"{"):
        return sacct_json.read(path, app)
    records = FileRecords(SOURCE, path)
    jobs: list[tuple[int, Cells, list[Cells]]] = []
    job_index: dict[str, int] = {}
    for number, line in columns_of(records, "|", NEEDED, ADVICE, ABSENT):
        job_id, _, step = _id(line).partition(".")
        if not step:
            job_index[job_id] = len(jobs)
            jobs.append((number, line, []))
        elif job_id in job_index:
            jobs[job_index[job_id]][2].append(line)
        else:
            records.refuse(number, f"a step of job {job_id[:40]}, without a job line before it")
    columns = set(jobs[0][1].texts) if jobs else set()
    if "maxrss" in columns and not columns & {"ntasks", "tresusageintot"}:
        logger.warning("%s: no column NTasks: each step is taken to be of one task", path)
    for number, line, steps in jobs:
        records.record(number, partial(_imported_run, line, steps, app))
    return records


def _id(line: Cells) -> str:
    return line.raw("jobid") or line.raw("jobidraw")


def _imported_run(line: Cells, steps: list[Cells], app: str | None) -> ImportedRun:
    tres = line.read("alloctres", tres_of) or line.read("reqtres", tres_of) or {}
    cpus = (
        line.read("alloccpus", integer) or line.read("ncpus", integer) or int(tres.get("cpu", 0))
    )
    cpus = cpus or line.read("reqcpus", integer) or 0
    nodes = line.read("allocnodes", integer) or line.read("nnodes", integer)
    nodes = nodes or int(tres.get("node", 1))
    start, start_s = line.read("start", moment) or ("", None)
    _, end_s = line.read("end", moment) or ("", None)
    status, signal = line.read("exitcode", exit_code) or (None, 0)
    job = SlurmJob(
        job_id=_id(line),
        state=line.raw("state"),
        runtime_s=_runtime(line, start_s, end_s),
        name=line.raw("jobname"),
        exit_status=status,
        signal=signal,
        cpu_s=line.read("totalcpu", slurm_seconds),
        time_limit_s=_limit(line),
        mem_limit_bytes=int(tres.get("mem", 0))
        or line.read("reqmem", lambda text: requested_memory(text, cpus, nodes)),
        cpus=cpus,
        gpus=int(tres.get("gres/gpu", 0)),
        nodes=line.text("nodelist"),
        partition=line.text("partition"),
        cluster=line.text("cluster"),
        user=line.text("user"),
        account=line.text("account"),
        submitted_at=(line.read("submit", moment) or ("",))[0],
        start=start,
        start_s=start_s,
        end_s=end_s,
        notes=[line.text(name) for name in NOTES if line.text(name)],
    )
    # The extern step belongs to Slurm, not to the job.
    job.step_states = [s.raw("state") for s in steps if not _id(s).endswith(".extern")]
    memory = [_task_memory(entry) for entry in (line, *steps)]
    job.unread = [
        *line.unread,
        *(f"{reason} (step {_id(step)})" for step in steps for reason in step.unread),
    ]
    for tasks, largest, total in memory:
        job.add_step(largest, total, tasks)
    return job.imported_run(app)


def _task_memory(entry: Cells) -> tuple[int | None, int | None, int | None]:
    """Return number of tasks, memory of the largest and of all tasks of a step, in bytes."""
    tasks = entry.read("ntasks", integer)
    average, sums = entry.read("averss", memory_of), entry.read("tresusageintot", tres_of) or {}
    total = int(sums.get("mem", 0)) or (average or 0) * (tasks or 0)  # which are the same
    return tasks, entry.read("maxrss", memory_of), total or None


def _runtime(line: Cells, start_s: int | None, end_s: int | None) -> float | None:
    """Return the elapsed time; without it the time from start to end."""
    raw = line.read("elapsedraw", finite)
    elapsed_s = line.read("elapsed", slurm_seconds) if raw is None else raw
    if elapsed_s is None and start_s is not None and end_s is not None:
        return float(end_s - start_s)
    return elapsed_s


def _limit(line: Cells) -> float | None:
    minutes = line.text("timelimitraw")
    if minutes and minutes.lower() not in NO_LIMIT:
        raw = line.read("timelimitraw", integer)
        return None if raw is None else 60.0 * raw
    text = line.text("timelimit")
    return None if text.lower() in NO_LIMIT else line.read("timelimit", slurm_seconds)


def memory_of(text: str) -> int:
    """Parse a size into bytes."""
    # With `--noconvert` the number has no unit and is in bytes.
    return parse_bytes(f"{text}B") if text[-1].isdigit() else slurm_bytes(text)


def requested_memory(text: str, cpus: int, nodes: int) -> int | None:
    """Parse ReqMem: up to Slurm 20.11 it is per node, ``4Gn``, or per CPU, ``4Gc``."""
    match = REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"not a size: {text[:40]!r}")
    return (
        memory_of(match[1]) * {"c": max(cpus, 1), "n": max(nodes, 1), "": 1}[match[2].lower()]
        or None
    )


def tres_of(text: str) -> dict[str, float]:
    """Parse trackable resources, ``cpu=2,mem=8G,gres/gpu=1``; memory in bytes."""
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            amounts[name] = memory_of(value) if value else 0
        elif value.isdecimal() and len(value) < 16:
            # GPUs are listed by type, with or without their sum.
            if name.startswith("gres/gpu:") and "gres/gpu=" not in text:
                amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + int(value)
            amounts[name] = int(value)
    return amounts


def exit_code(text: str) -> tuple[int, int]:
    """Parse ``status:signal``."""
    match = _EXIT.fullmatch(text)
    if match is None:
        raise TableError(f"not an exit code: {text[:40]!r}")
    return int(match[1]), int(match[2])


def moment(text: str) -> tuple[str, int]:
    """Return a time as written, and in seconds of the cluster's own clock."""
    # The time zone is not written; only differences and minutes are used.
    return text, int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
