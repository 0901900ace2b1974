"""Traces of workflow engines: ``trace.txt`` of Nextflow, and benchmark files of Snakemake.

Nextflow writes formatted values, or with ``trace.raw`` plain numbers. Snakemake writes a line for
each repeat of a successful job; ``max_rss``, ``io_in`` and ``io_out`` are in MB according to its
documentation and in MiB according to its code.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.quantities import nextflow_bytes, nextflow_seconds, slurm_seconds
from voxcast.runs.delimited import Cells, finite, first_bytes, integer, records, text_lines
from voxcast.runs.imported import ImportedRun, NotARunError, Records, positive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_KILLED = 128 + 9
_NEAR_LIMIT = 0.9
_NO_EXIT = 2**31 - 1  # Nextflow's unknown status
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?")
_MIB = 2**20


def nextflow(path: Path, app: str | None = None) -> Records:
    """Read a trace of Nextflow; every line is one attempt to run a task.

    Raises
    ------
    TableError
        If the file is not a trace.
    """
    trace = Records("nextflow", path)
    needed = (("process", "name"), ("realtime",))
    advice = "write it with `nextflow run -with-trace`; separated by tabs, header included"
    absent = frozenset({"", "-"})
    for number, line in records(path, "\t", needed, advice, trace.refused, absent):
        trace.record(number, partial(_task, line, app))
    return trace


def _task(line: Cells, app: str | None) -> ImportedRun:
    name = line.text("name")
    process, _, tag = name.partition(" (")
    process = line.text("process") or process
    status = line.text("status").upper()
    if status in ("NEW", "SUBMITTED", "RUNNING"):
        raise NotARunError(f"task {name or process} is {status}")
    if status == "CACHED":
        # The values are from an earlier run, which is in the trace of that run.
        raise NotARunError(f"task {name or process} is CACHED: it was not run again")
    runtime = line.read("realtime", _seconds)
    if status == "ABORTED" and not runtime:
        raise NotARunError(f"task {name or process} is ABORTED and was never run")
    start, completion = line.read("start", _moment), line.read("complete", _moment)
    # Local clocks are set back in autumn, so a task may end up to an hour before it starts.
    if start and completion and _instant(start) - _instant(completion) > timedelta(hours=1):
        raise TableError("completes before it starts")
    status_code = line.read("exit", integer)
    exit_status = None if status_code == _NO_EXIT else status_code
    limit_s, limit_bytes = line.read("time", _seconds), line.read("memory", _bytes)
    # Traces before 2017 have the last reading only.
    memory_column = "peak_rss" if "peak_rss" in line.texts else "rss"
    peak = positive(line.read(memory_column, _bytes))
    share = line.read("%cpu", lambda text: finite(text.removesuffix("%")))
    cpu = share / 100 * runtime if share is not None and runtime else None
    # SIGKILL means that memory ran out only if the peak is near the limit.
    below = peak is not None and limit_bytes is not None and peak < _NEAR_LIMIT * limit_bytes
    if status == "COMPLETED" or (not status and exit_status == 0):
        outcome = "completed"
    elif status == "ABORTED":
        outcome = "cancelled"
    elif status not in ("FAILED", ""):
        raise TableError(f"column status: not a status of a Nextflow task: {status[:40]!r}")
    elif limit_s and runtime and runtime >= limit_s:
        outcome = "timeout"
    else:
        outcome = "out_of_memory" if exit_status == _KILLED and not below else "failed"
    task_hash, native_id = line.text("hash"), line.text("native_id")
    return ImportedRun(
        identity=[task_hash, name or process, native_id] if task_hash else line.cells(),
        values={
            "app": app or process,
            "app_version": line.text("container"),
            "node_type": line.text("queue"),
            "host_id": line.text("hostname"),
            "device": "cpu",
            "cpus": line.read("cpus", integer) or 0,
            "mem_limit_bytes": limit_bytes,
            "limit_s": limit_s,
            "outcome": outcome,
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
            "hash": task_hash,
            "native_id": native_id,
            "attempt": line.text("attempt"),
            "status": status,
            "submitted_at": line.read("submit", _moment),
        },
        name=name or process,
        unread=line.unread,
    )


def snakemake(path: Path, app: str | None = None) -> Records:
    """Read a benchmark file; the application is its rule, or the file name without one.

    Snakemake writes tabs, or, into a file whose name ends in ``.jsonl``, an object on each line.

    Raises
    ------
    TableError
        If the file is not a benchmark file.
    """
    benchmark = Records("snakemake", path)
    unpacked = path.with_name(path.name.removesuffix(".gz"))  # the same runs, packed or not
    advice = "give the file named by a rule's `benchmark:`, header included"
    absent = frozenset({"", "-", "na", "nan", "none"})
    lines = (
        _json_lines(benchmark, absent)
        if first_bytes(path).lstrip().startswith(b"{")
        else records(path, "\t", (("s",), ("h:m:s",)), advice, benchmark.refused, absent)
    )
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for number, line in lines:
        key = tuple(line.cells())
        seen[key] = seen.get(key, 0) + 1
        # Lines have no identity, so equal lines of one file are numbered.
        identity = [unpacked.name, [list(pair) for pair in key], seen[key]]
        benchmark.record(number, partial(_repeat, unpacked, line, identity, app))
    return benchmark


def _json_lines(benchmark: Records, absent: frozenset[str]) -> Iterator[tuple[int, Cells]]:
    for number, text in text_lines(benchmark.path, benchmark.refused):
        try:
            values: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            benchmark.refused.add(f"not JSON: {str(error)[:80]}", [number])
            continue
        if not isinstance(values, dict) or not {"s", "h:m:s"} <= set(values):
            benchmark.refused.add("not an object with s and h:m:s", [number])
            continue
        texts = {name: "" if value is None else str(value) for name, value in values.items()}
        yield number, Cells(texts, absent=absent)


def _repeat(path: Path, line: Cells, identity: list[object], app: str | None) -> ImportedRun:
    peak = line.read("max_rss", finite)
    cpu = positive(line.read("cpu_time", finite))
    seconds = line.read("s", finite)
    rule = line.text("rule_name")
    return ImportedRun(
        identity=identity,
        values={
            "app": app or rule or re.sub(r"\.(bench\w*|tsv|txt|jsonl)", "", path.name),
            "device": "cpu",
            "cpus": int(line.read("threads", finite) or 0),
            "outcome": "completed",
            "runtime_s": line.read("h:m:s", _clock) if seconds is None else seconds,
            "cpu_s": cpu,
            "cpu_method": "snakemake_cpu_time" if cpu else "",
            "peak_rss_bytes": round(peak * _MIB) if peak else None,
            "memory_method": "snakemake_max_rss" if peak else "",
            "io_read_bytes": line.read("io_in", _mib),
            "io_write_bytes": line.read("io_out", _mib),
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


def _seconds(text: str) -> float:
    # Raw traces are in milliseconds.
    return float(text) / 1000 if _NUMBER.fullmatch(text) else nextflow_seconds(text)


def _bytes(text: str) -> int:
    return int(float(text)) if _NUMBER.fullmatch(text) else nextflow_bytes(text)


def _moment(text: str) -> str:
    if text.isdecimal():
        moment = datetime.fromtimestamp(int(text) / 1000, UTC)
    else:
        moment = datetime.fromisoformat(text)
    return moment.isoformat(timespec="milliseconds")


def _instant(moment: str) -> datetime:
    instant = datetime.fromisoformat(moment)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _clock(text: str) -> float:
    return slurm_seconds(re.sub(r"^(\d+) days?, ", r"\1-", text))


def _mib(text: str) -> int:
    return round(finite(text) * _MIB)
