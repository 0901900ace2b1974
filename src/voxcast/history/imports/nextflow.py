"""Nextflow's ``trace.txt``, with formatted values or raw ones (``trace.raw``)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.runs.delimited import Cells, finite, integer, positive
from voxcast.history.imports.file_records import FileRecords, ImportedRun, NotARunError
from voxcast.runs.delimited import columns_of
from voxcast.quantities import nextflow_bytes, nextflow_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "nextflow"
_UNFINISHED = ("NEW", "SUBMITTED", "RUNNING")
_ABSENT = frozenset({"", "-"})
_ADVICE = "write it with `nextflow run -with-trace`; separated by tabs, header included"
_KILLED = 128 + 9
_NEAR_LIMIT = 0.9
_NO_EXIT = 2**31 - 1  # written by Nextflow for an unknown status
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?")


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read a trace; every line is one attempt to run a task.

    Raises
    ------
    TableError
        If the file is not a trace.
    """
    records = FileRecords(SOURCE, path)
    needed = (("process", "name"), ("realtime",))
    for number, line in columns_of(records, "\t", needed, _ADVICE, _ABSENT):
        records.record(number, partial(_imported_run, line, app))
    return records


def _imported_run(line: Cells, app: str | None) -> ImportedRun:
    name = line.text("name")
    process, _, tag = name.partition(" (")
    process = line.text("process") or process
    status = line.text("status").upper()
    if status in _UNFINISHED:
        raise NotARunError(f"task {name or process} is {status}")
    if status == "CACHED":
        # The values are those of an earlier run, which is in the trace of that run.
        raise NotARunError(f"task {name or process} is CACHED: it was not run again")
    runtime = line.read("realtime", _seconds)
    if status == "ABORTED" and not runtime:
        raise NotARunError(f"task {name or process} is ABORTED and was never run")
    start, completion = line.read("start", _moment), line.read("complete", _moment)
    # Local clocks are set back in autumn, so a task may end up to an hour before it starts.
    if start and completion and _instant(start) - _instant(completion) > timedelta(hours=1):
        raise TableError("completes before it starts")
    exit_status = line.read("exit", _exit_status)
    limits = line.read("time", _seconds), line.read("memory", _bytes)
    # Traces before 2017 have the last reading only.
    memory_column = "peak_rss" if "peak_rss" in line.texts else "rss"
    peak = positive(line.read(memory_column, _bytes))
    share = line.read("%cpu", lambda text: finite(text.removesuffix("%")))
    cpu = share / 100 * runtime if share is not None and runtime else None
    return ImportedRun(
        identity=[line.text("hash"), name or process, line.text("native_id")]
        if line.text("hash")
        else sorted(line.by_column().items()),
        values={
            "app": app or process,
            "app_version": line.text("container"),
            "node_type": line.text("queue"),
            "host_id": line.text("hostname"),
            "device": "cpu",
            "cpus": line.read("cpus", integer) or 0,
            "mem_limit_bytes": limits[1],
            "limit_s": limits[0],
            "outcome": _outcome(status, exit_status, runtime, peak, limits),
            "exit_status": exit_status,
            "runtime_s": runtime,
            "cpu_s": positive(cpu),
            "cpu_method": "nextflow_pcpu" if cpu else "",
            "peak_rss_bytes": peak,
            "memory_method": f"nextflow_{memory_column}" if peak else "",
            "io_read_bytes": line.read("read_bytes", _bytes),
            "io_write_bytes": line.read("write_bytes", _bytes),
            "started_at": start or "",
        },
        labels={
            "task": name,
            "tag": line.text("tag") or tag.removesuffix(")"),
            "hash": line.text("hash"),
            "native_id": line.text("native_id"),
            "attempt": line.text("attempt"),
            "status": status,
            "submitted_at": line.read("submit", _moment),
        },
        name=name or process,
        unread=line.unread,
    )


def _outcome(
    status: str,
    exit_status: int | None,
    runtime: float | None,
    peak: float | None,
    limits: tuple[float | None, int | None],
) -> str:
    if status == "COMPLETED" or (not status and exit_status == 0):
        return "completed"
    if status == "ABORTED":
        return "cancelled"
    if status not in ("FAILED", ""):
        raise TableError(f"column status: not a status of a Nextflow task: {status[:40]!r}")
    limit_s, limit_bytes = limits
    if limit_s and runtime and runtime >= limit_s:
        return "timeout"
    # SIGKILL means that memory ran out only if the peak is near the limit.
    below_limit = peak is not None and limit_bytes is not None and peak < _NEAR_LIMIT * limit_bytes
    return "out_of_memory" if exit_status == _KILLED and not below_limit else "failed"


def _seconds(text: str) -> float:
    # Raw traces are in milliseconds.
    return float(text) / 1000 if _NUMBER.fullmatch(text) else nextflow_seconds(text)


def _bytes(text: str) -> int:
    return int(float(text)) if _NUMBER.fullmatch(text) else nextflow_bytes(text)


def _instant(moment: str) -> datetime:
    instant = datetime.fromisoformat(moment)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _moment(text: str) -> str:
    if text.isdecimal():
        moment = datetime.fromtimestamp(int(text) / 1000, UTC)
    else:
        moment = datetime.fromisoformat(text)
    return moment.isoformat(timespec="milliseconds")


def _exit_status(text: str) -> int | None:
    status = integer(text)
    return None if status == _NO_EXIT else status
