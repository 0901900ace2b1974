"""Snakemake's benchmark files: one line per repeat of a successful job.

The columns ``max_rss``, ``io_in`` and ``io_out`` are in MB according to its documentation and in
MiB according to its code.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING

from voxcast.runs.delimited import Cells, finite, positive
from voxcast.history.imports.file_records import FileRecords, ImportedRun
from voxcast.runs.delimited import columns_of, opening, text_lines
from voxcast.quantities import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "snakemake"
_ADVICE = "give the file named by a rule's `benchmark:`, header included"
_ABSENT = frozenset({"", "-", "na", "nan", "none"})
_FILE_END = re.compile(r"\.(bench\w*|tsv|txt|jsonl)")
_MIB = 2**20


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read a benchmark file; the application is its rule, or the file name if there is none.

    Snakemake writes tabs, or, into a file whose name ends in ``.jsonl``, an object on each line.

    Raises
    ------
    TableError
        If the file is not a benchmark file.
    """
    records = FileRecords(SOURCE, path)
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    path_unpacked = path.with_name(path.name.removesuffix(".gz"))  # the same runs, packed or not
    is_json = opening(path).lstrip().startswith(b"{")
    lines = (
        _json_lines(records)
        if is_json
        else columns_of(records, "\t", (("s",), ("h:m:s",)), _ADVICE, _ABSENT)
    )
    for number, line in lines:
        key = tuple(sorted(line.by_column().items()))
        seen[key] = seen.get(key, 0) + 1
        # Lines have no identity, so equal lines of one file are numbered.
        identity = [path_unpacked.name, [list(pair) for pair in key], seen[key]]
        records.record(number, partial(_imported_run, path_unpacked, line, identity, app))
    return records


def _json_lines(records: FileRecords) -> Iterator[tuple[int, Cells]]:
    for number, text in text_lines(records):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            records.refuse(number, f"not JSON: {str(error)[:80]}")
            continue
        if not isinstance(values, dict) or not {"s", "h:m:s"} <= set(values):
            records.refuse(number, "not an object with s and h:m:s")
            continue
        texts = {name: "" if value is None else str(value) for name, value in values.items()}
        yield number, Cells(texts, absent=_ABSENT)


def _imported_run(path: Path, line: Cells, identity: list[object], app: str | None) -> ImportedRun:
    peak = line.read("max_rss", finite)
    cpu = positive(line.read("cpu_time", finite))
    threads = line.read("threads", finite)
    return ImportedRun(
        identity=identity,
        values={
            "app": app
            or line.text("rule_name")
            or re.sub(r"\.(bench\w*|tsv|txt|jsonl)", "", path.name),
            "device": "cpu",
            "cpus": int(threads or 0),
            "outcome": "completed",
            "runtime_s": _runtime(line),
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
            "rule": line.text("rule_name"),
            "wildcards": line.text("wildcards"),
        },
        name=path.name,
        unread=line.unread,
    )


def _runtime(line: Cells) -> float | None:
    seconds = line.read("s", finite)
    return line.read("h:m:s", _clock) if seconds is None else seconds


def _clock(text: str) -> float:
    return slurm_seconds(re.sub(r"^(\d+) days?, ", r"\1-", text))


def _mib(text: str) -> int:
    return round(finite(text) * _MIB)
