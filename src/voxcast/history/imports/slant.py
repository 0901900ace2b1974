"""The 312 published runs of SLANT (Gainaru et al., TPDS 32(5), doi 10.1109/TPDS.2020.3039728).

The tables are derived from that artifact: ``slant_runs.csv``, ``slant_drd_phases.csv`` and
``slant_memory_30s.csv``; the latter two may be missing. Peak memory is that of the whole node, by
vmstat every 2 s, and includes about 1.8 GB of the idle system.
"""

from __future__ import annotations

import csv
import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.runs.delimited import parsed
from voxcast.history.imports.file_records import FileRecords, ImportedRun
from voxcast.runs.delimited import text_lines
from voxcast.history.thinning import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "slant"
VARIABLE = "VOXCAST_SLANT_ARTIFACT"
RUNS, PHASES, TRACES = "slant_runs.csv", "slant_drd_phases.csv", "slant_memory_30s.csv"
# The tables are in kB and their authors publish GB as powers of ten. The default unit of vmstat is
# 1024 bytes, so true sizes may be 2.4 % larger throughout.
KB = 1000
_CPUS = 24
_NODE = {
    "app": "slant",
    "app_version": "v1_0_0_CPU",
    "node_type": "miriel",
    "cpu_model": "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz",
    "device": "cpu",
    "cpus": _CPUS,
}


def read(path: Path, app: str | None = None) -> FileRecords:
    """Read the tables of the folder ``path``, or of the folder that contains the file ``path``.

    Raises
    ------
    TableError
        If the table of runs is missing.
    """
    folder = path if path.is_dir() else path.parent
    runs = folder / RUNS
    if not runs.is_file():
        raise TableError(f"has no {RUNS}", folder, f"set {VARIABLE} to the artifact's tables")
    import pandas as pd

    records = FileRecords(SOURCE, runs)
    rows: dict[str, dict[str, Any]] = {}
    for number, line in _lines(records, ("run", "input_file", "makespan_s")):
        row = records.record(number, partial(_imported_run, line, app))
        if row is not None:
            rows[line["run"]] = row
    for row, line in _joined(records, rows, folder / PHASES):
        records.phases.append(_phase(row, line))
    traces: dict[str, list[dict[str, Any]]] = {}
    for row, line in _joined(records, rows, folder / TRACES):
        traces.setdefault(row["cell_key"], []).append(_sample(row, line))
    for samples in traces.values():
        thin = thinned(pd.DataFrame(samples), "rss_bytes")
        records.traces.extend(samples[n] for n in thin.index)
    records.companions = [path for path in (folder / PHASES, folder / TRACES) if path.is_file()]
    return records


def folder() -> Path:
    """Return the folder given by the environment variable.

    Raises
    ------
    TableError
        If the variable is not set.
    """
    folder_name = os.environ.get(VARIABLE)
    if not folder_name:
        raise TableError("is not set", VARIABLE, "set it, or give the folder of the artifact")
    return Path(folder_name)


def _imported_run(line: dict[str, str], app: str | None) -> ImportedRun:
    peak, mean = (_number(line, f"node_used_mem_{statistic}_kb") for statistic in ("max", "mean"))
    image = line["input_file"]
    return ImportedRun(
        identity=[line["run"], image, line["makespan_s"]],
        values=_NODE
        | {
            "app": app or _NODE["app"],
            "volume_id": image.removesuffix(".gz").removesuffix(".nii"),
            "subject": line.get("subject", ""),
            "outcome": "completed",
            "runtime_s": _number(line, "makespan_s"),
            "peak_rss_bytes": None if peak is None else round(peak * KB),
            "memory_method": "vmstat_node",
        },
        labels={
            "run": line["run"],
            "dataset": line.get("dataset"),
            "modality": line.get("modality"),
            "input_size_group": line.get("input_size_group"),
            "n_volumes": _number(line, "n_volumes"),
            "file_size_bytes": _number(line, "file_size_bytes"),
            "mean_rss_bytes": None if mean is None else round(mean * KB),
            "node_used_mem_min_kb": _number(line, "node_used_mem_min_kb"),
        },
    )


def _phase(row: dict[str, Any], line: dict[str, str]) -> dict[str, Any]:
    start, duration = _required(line, "start_s"), _required(line, "duration_s")
    peak = _number(line, "node_used_mem_max_kb")
    return {
        "cell_key": row["cell_key"],
        "app": row["app"],
        "volume_id": row["volume_id"],
        "cpus": _CPUS,
        "phase": f"task_{line.get('task', '')}",
        "start_s": start,
        "end_s": start + duration,
        "duration_s": duration,
        "cpu_s": None,
        "peak_rss_bytes": None if peak is None else round(peak * KB),
    }


def _sample(row: dict[str, Any], line: dict[str, str]) -> dict[str, Any]:
    return {
        "cell_key": row["cell_key"],
        "t_s": _required(line, "t_s"),
        "rss_bytes": round(_required(line, "node_used_mem_kb") * KB),
        "cpu_s": None,
    }


def _lines(records: FileRecords, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    lines = text_lines(records)
    header = next(csv.reader([next(lines, (0, ""))[1]]), [])
    missing = [name for name in needed if name not in header]
    if missing:
        raise TableError(f"has no column {', '.join(missing)}", records.path)
    for number, text in lines:
        fields = text.split(",")  # no field in these tables contains a comma
        if len(fields) != len(header):
            records.refuse(number, f"{len(fields)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, (field.strip() for field in fields), strict=True))


def _joined(
    records: FileRecords, rows: dict[str, dict[str, Any]], path: Path
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the lines of a companion table, each with the row of its run.

    Raises
    ------
    TableError
        If a line cannot be read. These tables are derived, so any error makes them invalid.
    """
    if not path.is_file():
        return
    table = FileRecords(SOURCE, path)
    for _, line in _lines(table, ("run",)):
        if line["run"] in rows:
            yield rows[line["run"]], line
    if table.bad:
        raise TableError(f"line {table.bad[0].line}: {table.bad[0].reason}", path)


def _required(line: dict[str, str], name: str) -> float:
    value = _number(line, name)
    if value is None:
        raise TableError(f"run {line['run']}: no {name}", "companion tables")
    return value


def _number(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    if not text:
        return None
    value = parsed(name, text, float)
    if not math.isfinite(value):
        raise TableError(f"{name} is {text[:40]}")
    return value
