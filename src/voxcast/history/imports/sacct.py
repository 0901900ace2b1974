"""Text of ``sacct -P``: any columns, job lines followed by the lines of their steps."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports import sacct_json
from voxcast.history.imports.lines import columns_of, opening
from voxcast.history.imports.reading import Found, Reading, parsed
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


def read(path: Path, app: str | None = None) -> Reading:
    """Read a file written by ``sacct -P`` or ``sacct --json``.

    A job line and the step lines that follow it are one record, listed under the job's line.
    With ``-D`` a job that was requeued has one job line an attempt; each is a run.

    Raises
    ------
    TableError
        If it is no such file.
    """
    if opening(path).lstrip().startswith(b"{"):
        return sacct_json.read(path, app)
    reading = Reading(SOURCE, path)
    jobs: list[tuple[int, dict[str, str], list[dict[str, str]]]] = []
    last: dict[str, int] = {}
    needed = (("JobID",), ("State",), ("ElapsedRaw", "Elapsed"))
    for number, line in columns_of(reading, "|", needed, _ADVICE):
        job_id, _, step = line["jobid"].partition(".")
        if not step:
            last[job_id] = len(jobs)
            jobs.append((number, line, []))
        elif job_id in last:
            jobs[last[job_id]][2].append(line)
        else:
            reading.refuse(number, f"a step of job {job_id[:40]}, which has no line before it")
    for number, line, steps in jobs:
        reading.record(number, lambda line=line, steps=steps: _found(line, steps, app))  # type: ignore[misc]
    return reading


def _found(line: dict[str, str], steps: list[dict[str, str]], app: str | None) -> Found:
    tres = _tres(line.get("alloctres", "")) or _tres(line.get("reqtres", ""))
    cpus = _whole(line, "alloccpus") or _whole(line, "ncpus") or int(tres.get("cpu", 0))
    cpus = cpus or _whole(line, "reqcpus") or 0
    nodes = _whole(line, "allocnodes") or _whole(line, "nnodes") or int(tres.get("node", 1))
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
        mem_limit_bytes=int(tres.get("mem", 0)) or _requested(line.get("reqmem", ""), cpus, nodes),
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
    for own in (line, *steps):
        job.add_peak(_memory(own.get("maxrss", "")))
        job.tasks = max(job.tasks or 0, _whole(own, "ntasks") or 0) or None
    # What Slurm itself runs in its own step says nothing of the job.
    job.step_states = [s["state"] for s in steps if not s["jobid"].endswith(".extern")]
    return job.found(app)


def _runtime(line: dict[str, str]) -> float | None:
    raw = line.get("elapsedraw", "")
    if _unknown(raw):
        return _duration(line, "elapsed")
    if not re.fullmatch(r"-?\d{1,15}", raw):
        raise TableError(f"ElapsedRaw is no number of seconds: {raw[:40]!r}")
    return float(raw)


def _duration(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    return None if _unknown(text) else parsed(name, text, slurm_seconds)


def _limit(line: dict[str, str]) -> float | None:
    if (minutes := _whole(line, "timelimitraw")) is not None:
        return 60.0 * minutes
    text = line.get("timelimit", "")
    return None if text.lower() in _NO_LIMIT else _duration(line, "timelimit")


def _memory(text: str) -> int | None:
    if _unknown(text):
        return None
    # `--noconvert` leaves the unit out; then it is bytes.
    if text[-1].isdigit():
        return int(parsed("memory", f"{text}B", parse_bytes))
    return int(parsed("memory", text, slurm_bytes))


def _requested(text: str, cpus: int, nodes: int) -> int | None:
    """Read ReqMem: up to Slurm 20.11 it is given per node, ``4Gn``, or per CPU, ``4Gc``."""
    if _unknown(text):
        return None
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise TableError(f"ReqMem is no size: {text[:40]!r}")
    size = _memory(match[1]) or 0
    return size * {"c": max(cpus, 1), "n": max(nodes, 1), "": 1}[match[2].lower()] or None


def _tres(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            found[name] = _memory(value) or 0
        elif value.isdecimal() and len(value) < 16:
            # Typed GPUs are listed beside their sum, or alone.
            if name.startswith("gres/gpu:") and "gres/gpu=" not in text:
                found["gres/gpu"] = found.get("gres/gpu", 0) + int(value)
            found[name] = int(value)
    return found


def _exit(text: str) -> tuple[int | None, int]:
    match = _EXIT.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (None, 0)


def _moment(line: dict[str, str], name: str) -> tuple[str, int | None]:
    text = line.get(name, "")
    if _unknown(text):
        return "", None
    try:
        # The zone is the cluster's and not written; only differences and minutes are used.
        return text, int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError) as error:
        raise TableError(f"{name} is no time: {text[:40]!r}") from error


def _whole(line: dict[str, str], name: str) -> int | None:
    text = line.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _unknown(text: str) -> bool:
    return text.lower() in _UNKNOWN
