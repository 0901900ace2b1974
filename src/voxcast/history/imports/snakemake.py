"""Snakemake's benchmark files: one line per repeat of a successful job.

The columns ``max_rss``, ``io_in`` and ``io_out`` are in MB according to its documentation and in
MiB according to its code.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING

from voxcast.errors import TableError
from voxcast.history.imports.file_records import FileRecords, ImportedRun, parsed, positive
from voxcast.history.imports.lines import columns_of
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "snakemake"
_ADVICE = "give the file named by a rule's `benchmark:`, header included"
_ABSENT = {"", "-", "na", "nan", "none"}
_MIB = 2**20


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read a benchmark file; the application is its rule, or the file name if there is none.

    Raises
    ------
    TableError
        If the file is not a benchmark file.
    """
    records = FileRecords(SOURCE, path)
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for number, line in columns_of(records, "\t", (("s",), ("h:m:s",)), _ADVICE):
        fields = {name: "" if text.lower() in _ABSENT else text for name, text in line.items()}
        key = tuple(sorted(fields.items()))
        seen[key] = seen.get(key, 0) + 1
        # Lines have no identity, so equal lines of one file are numbered.
        identity = [path.name, [list(pair) for pair in key], seen[key]]
        records.record(number, partial(_imported_run, path, fields, identity, app))
    return records


def _imported_run(
    path: Path, line: dict[str, str], identity: list[object], app: str | None
) -> ImportedRun:
    peak = _number(line, "max_rss")
    cpu = positive(_number(line, "cpu_time"))
    threads = _number(line, "threads")
    return ImportedRun(
        identity=identity,
        values={
            "app": app or line.get("rule_name") or re.sub(r"\.(bench\w*|tsv|txt)", "", path.name),
            "device": "cpu",
            "cpus": int(threads or 0),
            "outcome": "completed",
            "runtime_s": _runtime(line),
            "cpu_s": cpu,
            "cpu_method": "snakemake_cpu_time" if cpu else "",
            "peak_rss_bytes": round(peak * _MIB) if peak else None,
            "memory_method": "snakemake_max_rss" if peak else "",
            "io_read_bytes": _mib(line, "io_in"),
            "io_write_bytes": _mib(line, "io_out"),
        },
        labels={
            "file": path.name,
            "folder": path.parent.name,
            "rule": line.get("rule_name"),
            "wildcards": line.get("wildcards"),
        },
    )


def _runtime(line: dict[str, str]) -> float | None:
    seconds = _number(line, "s")
    text = line["h:m:s"]
    if seconds is not None or not text:
        return seconds
    return parsed("h:m:s", re.sub(r"^(\d+) days?, ", r"\1-", text), slurm_seconds)


def _mib(line: dict[str, str], name: str) -> int | None:
    value = _number(line, name)
    return None if value is None else round(value * _MIB)


def _number(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    if not text:
        return None
    value = parsed(name, text, float)
    if not math.isfinite(value):
        raise TableError(f"{name} is {text[:40]}")
    return value
