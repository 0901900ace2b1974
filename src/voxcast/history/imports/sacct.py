"""Text of ``sacct -P`` with any columns: job lines, each followed by the lines of its steps."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports import sacct_json
from voxcast.history.imports.file_records import FileRecords, ImportedRun, parsed
from voxcast.history.imports.lines import columns_of, opening
from voxcast.history.imports.slurm_job import SlurmJob
from voxcast.quantities import parse_bytes, slurm_bytes, slurm_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "sacct"
_UNKNOWN = {"", "unknown", "none", "none assigned", "invalid", "n/a"}
_NO_LIMIT = {"unlimited", "partition_limit"}
_NOTES = ("comment", "admincomment", "systemcomment", "reason")
_ADVICE = "write it with `sacct -P --format=JobID,JobName,State,ElapsedRaw,...`, header included"
_EXIT = re.compile(r"(\d{1,9}):(\d{1,9})")
_MEMORY = re.compile(r"([\d.]+[KMGTP]?)([cn]?)", re.IGNORECASE)


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
    jobs: list[tuple[int, dict[str, str], list[dict[str, str]]]] = []
    job_index: dict[str, int] = {}
    needed = (("JobID",), ("State",), ("ElapsedRaw", "Elapsed"))
    for number, line in columns_of(records, "|", needed, _ADVICE):
        job_id, _, step = line["jobid"].partition(".")
        if not step:
            job_index[job_id] = len(jobs)
            jobs.append((number, line, []))
        elif job_id in job_index:
            jobs[job_index[job_id]][2].append(line)
        else:
            records.refuse(number, f"a step of job {job_id[:40]}, without a job line before it")
    for number, line, steps in jobs:
        records.record(number, partial(_imported_run, line, steps, app))
    return records


def _imported_run(
    line: dict[str, str], steps: list[dict[str, str]], app: str | None
) -> ImportedRun:
    tres = _tres(line.get("alloctres", "")) or _tres(line.get("reqtres", ""))
    cpus = _integer(line, "alloccpus") or _integer(line, "ncpus") or int(tres.get("cpu", 0))
    cpus = cpus or _integer(line, "reqcpus") or 0
    nodes = _integer(line, "allocnodes") or _integer(line, "nnodes") or int(tres.get("node", 1))
    start, start_s = _moment(line, "start")
    status, signal = _exit(line.get("exitcode", ""))
    job = SlurmJob(
        job_id=line["jobid"],
        state=line["state"],
        runtime_s=_runtime(line),
        name=line.get("jobname", ""),
        exit_status=status,
        signal=signal,
        cpu_s=_duration(line, "totalcpu"),
        time_limit_s=_limit(line),
        mem_limit_bytes=int(tres.get("mem", 0))
        or _requested_memory(line.get("reqmem", ""), cpus, nodes),
        cpus=cpus,
        gpus=int(tres.get("gres/gpu", 0)),
        nodes=line.get("nodelist", "") if not _unknown(line.get("nodelist", "")) else "",
        partition=line.get("partition", ""),
        cluster=line.get("cluster", ""),
        start=start,
        start_s=start_s,
        end_s=_moment(line, "end")[1],
        notes=[line[name] for name in _NOTES if not _unknown(line.get(name, ""))],
    )
    for entry in (line, *steps):
        job.add_peak(_memory(entry.get("maxrss", "")))
        job.tasks = max(job.tasks or 0, _integer(entry, "ntasks") or 0) or None
    # The extern step belongs to Slurm, not to the job.
    job.step_states = [s["state"] for s in steps if not s["jobid"].endswith(".extern")]
    return job.imported_run(app)


def _runtime(line: dict[str, str]) -> float | None:
    raw = line.get("elapsedraw", "")
    if _unknown(raw):
        return _duration(line, "elapsed")
    if not re.fullmatch(r"-?\d{1,15}", raw):
        raise TableError(f"ElapsedRaw is not a number of seconds: {raw[:40]!r}")
    return float(raw)


def _duration(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    return None if _unknown(text) else parsed(name, text, slurm_seconds)


def _limit(line: dict[str, str]) -> float | None:
    if (minutes := _integer(line, "timelimitraw")) is not None:
        return 60.0 * minutes
    text = line.get("timelimit", "")
    return None if text.lower() in _NO_LIMIT else _duration(line, "timelimit")


def _memory(text: str) -> int | None:
    if _unknown(text):
        return None
    # With `--noconvert` the number has no unit and is in bytes.
    if text[-1].isdigit():
        return int(parsed("memory", f"{text}B", parse_bytes))
    return int(parsed("memory", text, slurm_bytes))


def _requested_memory(text: str, cpus: int, nodes: int) -> int | None:
    """Parse ReqMem: up to Slurm 20.11 it is per node, ``4Gn``, or per CPU, ``4Gc``."""
    if _unknown(text):
        return None
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"ReqMem is not a size: {text[:40]!r}")
    size = _memory(match[1]) or 0
    return size * {"c": max(cpus, 1), "n": max(nodes, 1), "": 1}[match[2].lower()] or None


def _tres(text: str) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            amounts[name] = _memory(value) or 0
        elif value.isdecimal() and len(value) < 16:
            # GPUs are listed by type, with or without their sum.
            if name.startswith("gres/gpu:") and "gres/gpu=" not in text:
                amounts["gres/gpu"] = amounts.get("gres/gpu", 0) + int(value)
            amounts[name] = int(value)
    return amounts


def _exit(text: str) -> tuple[int | None, int]:
    match = _EXIT.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (None, 0)


def _moment(line: dict[str, str], name: str) -> tuple[str, int | None]:
    text = line.get(name, "")
    if _unknown(text):
        return "", None
    try:
        # The time zone is not written; only differences and minutes are used.
        return text, int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError) as error:
        raise TableError(f"{name} is not a time: {text[:40]!r}") from error


def _integer(line: dict[str, str], name: str) -> int | None:
    text = line.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _unknown(text: str) -> bool:
    return text.lower() in _UNKNOWN
