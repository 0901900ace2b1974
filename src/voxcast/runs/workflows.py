"""Traces of workflow engines: ``trace.txt`` of Nextflow, and benchmark files of Snakemake.

Nextflow writes formatted values, or with ``trace.raw`` plain numbers. Snakemake writes a line for
each repeat of a successful job; ``max_rss``, ``io_in`` and ``io_out`` are in MB according to its
documentation and in MiB according to its code.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.quantities import slurm_seconds
from voxcast.records import KILLED, NEAR_LIMIT
from voxcast.runs import csv_table
from voxcast.runs.csv_table import Column, Line
from voxcast.runs.imported import ImportedRun, NotARunError, Records, finite, positive

if TYPE_CHECKING:
    from pathlib import Path

_NEXTFLOW = {
    "app_version": Column("container"),
    "node_type": Column("queue"),
    "host_id": Column("hostname"),
    "cpus": Column("cpus"),
    "mem_limit_bytes": Column("memory", "nextflow"),
    "limit_s": Column("time", "nextflow"),
    "exit_status": Column("exit", values={str(2**31 - 1): None}),  # its unknown status
    "runtime_s": Column("realtime", "nextflow"),
    "io_read_bytes": Column("read_bytes", "nextflow"),
    "io_write_bytes": Column("write_bytes", "nextflow"),
}
_SNAKEMAKE = {
    "cpus": Column("threads"),
    "runtime_s": Column("s"),
    "cpu_s": Column("cpu_time"),
    "peak_rss_bytes": Column("max_rss", "MiB"),
    "io_read_bytes": Column("io_in", "MiB"),
    "io_write_bytes": Column("io_out", "MiB"),
}
_NEXTFLOW_ADVICE = "write it with `nextflow run -with-trace`; separated by tabs, header included"
_SNAKEMAKE_ADVICE = "give the file named by a rule's `benchmark:`, with tabs and its header"


def nextflow(path: Path, app: str | None = None) -> Records:
    """Read a trace of Nextflow; every line is one attempt to run a task.

    Raises
    ------
    TableError
        If the file is not a trace.
    """
    trace = Records("nextflow", path)
    needed = (("process", "name"), ("realtime",))
    for number, line in csv_table.lines(trace, "\t", needed, _NEXTFLOW_ADVICE):
        trace.record(number, partial(_task, line, app))
    return trace


def _task(line: Line, app: str | None) -> ImportedRun:
    name = line.text("name")
    process, _, tag = name.partition(" (")
    process = line.text("process") or process
    status = line.text("status").upper()
    if status in ("NEW", "SUBMITTED", "RUNNING"):
        raise NotARunError(f"task {name or process} is {status}")
    if status == "CACHED":
        # The values are from an earlier run, which is in the trace of that run.
        raise NotARunError(f"task {name or process} is CACHED: it was not run again")
    # Traces before 2017 have the last reading only.
    memory_column = "peak_rss" if "peak_rss" in line.texts else "rss"
    columns = {**_NEXTFLOW, "peak_rss_bytes": Column(memory_column, "nextflow")}
    values = line.values(columns)
    runtime, peak = values["runtime_s"], positive(values["peak_rss_bytes"])
    if status == "ABORTED" and not runtime:
        raise NotARunError(f"task {name or process} is ABORTED and was never run")
    start, completion = line.read("start", _moment), line.read("complete", _moment)
    # Local clocks are set back in autumn, so a task may end up to an hour before it starts.
    if start and completion and _instant(start) - _instant(completion) > timedelta(hours=1):
        raise TableError("completes before it starts")
    share = line.read("%cpu", lambda text: finite(text.removesuffix("%")))
    cpu = share / 100 * runtime if share and runtime else None
    task_hash, native_id = line.text("hash"), line.text("native_id")
    return ImportedRun(
        identity=[task_hash, name or process, native_id] if task_hash else line.cells(),
        values=values
        | {
            "app": app or process,
            "device": "cpu",
            "outcome": _outcome(status, values, peak),
            "cpu_s": cpu,
            "cpu_method": "nextflow_pcpu" if cpu else "",
            "peak_rss_bytes": peak,
            "memory_method": f"nextflow_{memory_column}" if peak else "",
            "started_at": start,
        },
        labels={
            "task": name,
            "tag": line.text("tag") or tag.removesuffix(")"),
            "hash": task_hash,
            "native_id": native_id,
            "attempt": line.text("attempt"),
            "status": status,
            "submitted_at": line.read("submit", _moment),
        },
        name=name or process,
        unread=line.unread,
    )


def _outcome(status: str, values: dict[str, Any], peak: float | None) -> str:
    if status == "COMPLETED" or (not status and values["exit_status"] == 0):
        return "completed"
    if status == "ABORTED":
        return "cancelled"
    if status not in ("FAILED", ""):
        raise TableError(f"column status: not a status of a Nextflow task: {status[:40]!r}")
    limit_s, limit_bytes, runtime = (
        values[name] for name in ("limit_s", "mem_limit_bytes", "runtime_s")
    )
    if limit_s and runtime and runtime >= limit_s:
        return "timeout"
    below = peak is not None and limit_bytes is not None and peak < NEAR_LIMIT * limit_bytes
    return "out_of_memory" if values["exit_status"] in KILLED and not below else "failed"


def snakemake(path: Path, app: str | None = None) -> Records:
    """Read a benchmark file; the application is its rule, or the file name without one.

    Raises
    ------
    TableError
        If the file is not a benchmark file.
    """
    benchmark = Records("snakemake", path)
    unpacked = path.with_name(path.name.removesuffix(".gz"))  # the same runs, packed or not
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    needed = (("s",), ("h:m:s",))
    for number, line in csv_table.lines(benchmark, "\t", needed, _SNAKEMAKE_ADVICE):
        key = tuple(line.cells())
        seen[key] = seen.get(key, 0) + 1
        # Lines have no identity, so equal lines of one file are numbered.
        identity = [unpacked.name, [list(pair) for pair in key], seen[key]]
        benchmark.record(number, partial(_repeat, unpacked, line, identity, app))
    return benchmark


def _repeat(path: Path, line: Line, identity: list[object], app: str | None) -> ImportedRun:
    values = line.values(_SNAKEMAKE)
    cpu, peak = positive(values["cpu_s"]), positive(values["peak_rss_bytes"])
    if values["runtime_s"] is None:
        values["runtime_s"] = line.read(
            "h:m:s", lambda text: slurm_seconds(re.sub(r"^(\d+) days?, ", r"\1-", text))
        )
    rule = line.text("rule_name")
    return ImportedRun(
        identity=identity,
        values=values
        | {
            "app": app or rule or re.sub(r"\.(bench\w*|tsv|txt)", "", path.name),
            "device": "cpu",
            "outcome": "completed",
            "cpu_s": cpu,
            "cpu_method": "snakemake_cpu_time" if cpu else "",
            "peak_rss_bytes": peak,
            "memory_method": "snakemake_max_rss" if peak else "",
        },
        labels={
            "file": path.name,
            "folder": path.parent.name,
            "rule": rule,
            "wildcards": line.text("wildcards"),
        },
        name=path.name,
        unread=line.unread,
    )


def _moment(text: str) -> str:
    if text.isdecimal():
        moment = datetime.fromtimestamp(int(text) / 1000, UTC)
    else:
        moment = datetime.fromisoformat(text)
    return moment.isoformat(timespec="milliseconds")


def _instant(moment: str) -> datetime:
    instant = datetime.fromisoformat(moment)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
