"""Nextflow's ``trace.txt``, with formatted values or raw ones (``trace.raw``)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports.file_records import (
    FileRecords,
    ImportedRun,
    NotARunError,
    parsed,
    positive,
)
from voxcast.history.imports.lines import columns_of
from voxcast.quantities import nextflow_bytes, nextflow_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "nextflow"
_UNFINISHED = ("NEW", "SUBMITTED", "RUNNING")
_ADVICE = "write it with `nextflow run -with-trace`; separated by tabs, header included"
_KILLED = 128 + 9
_NEAR_LIMIT = 0.9
_NO_EXIT = 2**31 - 1  # written by Nextflow for an unknown status
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?")
_CPU = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%?")


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read a trace; every line is one attempt to run a task.

    Raises
    ------
    TableError
        If the file is not a trace.
    """
    records = FileRecords(SOURCE, path)
    for number, line in columns_of(records, "\t", (("process", "name"), ("realtime",)), _ADVICE):
        fields = {name: "" if text == "-" else text for name, text in line.items()}
        records.record(number, partial(_imported_run, fields, app))
    return records


def _imported_run(line: dict[str, str], app: str | None) -> ImportedRun:
    name = line.get("name", "")
    process, _, tag = name.partition(" (")
    process = line.get("process") or process
    status = line.get("status", "").upper()
    if status in _UNFINISHED:
        raise NotARunError(f"task {name or process} is {status}")
    runtime = _seconds(line, "realtime")
    if status == "ABORTED" and not runtime:
        raise NotARunError(f"task {name or process} is ABORTED and was never run")
    start, completion = _moment(line, "start"), _moment(line, "complete")
    # Local clocks are set back in autumn, so a task may end up to an hour before it starts.
    if start and completion and _instant(completion) < _instant(start) - timedelta(hours=1):
        raise TableError("completes before it starts")
    exit_status = _integer(line, "exit")
    limits = _seconds(line, "time"), _bytes(line, "memory")
    peak = positive(_bytes(line, "peak_rss"))
    share = _CPU.fullmatch(line.get("%cpu", ""))
    cpu = float(share[1]) / 100 * runtime if share and runtime else None
    return ImportedRun(
        # A resumed task is listed again as CACHED with the values of its first run.
        identity=[line.get("hash", ""), name or process, line.get("native_id", "")]
        if line.get("hash")
        else sorted(line.items()),
        values={
            "app": app or process,
            "app_version": line.get("container", ""),
            "node_type": line.get("queue", ""),
            "host_id": line.get("hostname", ""),
            "device": "cpu",
            "cpus": _integer(line, "cpus") or 0,
            "mem_limit_bytes": limits[1],
            "limit_s": limits[0],
            "outcome": _outcome(status, exit_status, runtime, peak, limits),
            "exit_status": exit_status,
            "runtime_s": runtime,
            "cpu_s": positive(cpu),
            "cpu_method": "nextflow_pcpu" if cpu else "",
            "peak_rss_bytes": peak,
            "memory_method": "nextflow_peak_rss" if peak else "",
            "io_read_bytes": _bytes(line, "read_bytes"),
            "io_write_bytes": _bytes(line, "write_bytes"),
            "started_at": start,
        },
        labels={
            "task": name,
            "tag": line.get("tag") or tag.removesuffix(")"),
            "hash": line.get("hash"),
            "native_id": line.get("native_id"),
            "attempt": line.get("attempt"),
            "status": status,
        },
    )


def _outcome(
    status: str,
    exit_status: int | None,
    runtime: float | None,
    peak: float | None,
    limits: tuple[float | None, int | None],
) -> str:
    if status in ("COMPLETED", "CACHED") or (not status and exit_status == 0):
        return "completed"
    if status == "ABORTED":
        return "preempted"
    if status not in ("FAILED", ""):
        raise TableError(f"not a status of a Nextflow task: {status[:40]!r}")
    limit_s, limit_bytes = limits
    if limit_s and runtime and runtime >= limit_s:
        return "timeout"
    # SIGKILL means that memory ran out only if the peak is near the limit.
    below_limit = peak is not None and limit_bytes is not None and peak < _NEAR_LIMIT * limit_bytes
    return "out_of_memory" if exit_status == _KILLED and not below_limit else "failed"


def _seconds(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return float(text) / 1000  # raw traces are in milliseconds
    return parsed(name, text, nextflow_seconds)


def _bytes(line: dict[str, str], name: str) -> int | None:
    text = line.get(name, "")
    if not text:
        return None
    return int(float(text)) if _NUMBER.fullmatch(text) else int(parsed(name, text, nextflow_bytes))


def _instant(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


def _moment(line: dict[str, str], name: str) -> str:
    text = line.get(name, "")
    if not text:
        return ""
    try:
        if text.isdecimal():
            moment = datetime.fromtimestamp(int(text) / 1000, UTC)
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise TableError(f"{name} is not a time: {text[:40]!r}") from error
    return moment.isoformat(timespec="milliseconds")


def _integer(line: dict[str, str], name: str) -> int | None:
    text = line.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise TableError(f"{name} is not an integer: {text[:40]!r}")
    return None if int(text) == _NO_EXIT else int(text)
