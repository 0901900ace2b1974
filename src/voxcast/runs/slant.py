"""The 312 published runs of SLANT (Gainaru et al., TPDS 32(5), doi 10.1109/TPDS.2020.3039728).

The tables are derived from that artifact: ``slant_runs.csv``, ``slant_drd_phases.csv`` and
``slant_memory_30s.csv``; the latter two may be missing. Peak memory is of the whole node, by
vmstat every 2 s, and includes about 1.8 GB of the idle system.
"""

from __future__ import annotations

import csv
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from voxcast.errors import TableError
from voxcast.runs.delimited import finite, parsed, text_lines
from voxcast.runs.imported import ImportedRun, Records
from voxcast.runs.series import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "VOXCAST_SLANT_ARTIFACT"
RUNS, PHASES, TRACES = "slant_runs.csv", "slant_drd_phases.csv", "slant_memory_30s.csv"
# The tables are in kB and their authors publish GB as powers of ten. The default unit of vmstat is
# 1024 bytes, so true sizes may be 2.4 % larger throughout.
KB = 1000
_NODE = {
    "app": "slant",
    "app_version": "v1_0_0_CPU",
    "node_type": "miriel",
    "cpu_model": "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz",
    "device": "cpu",
    "cpus": 24,
}


def read(path: Path, app: str | None = None) -> Records:
    """Read the tables of the folder ``path``, or of the folder that contains the file ``path``.

    Raises
    ------
    TableError
        If the table of runs is missing, or a table of phases or samples has a broken line.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / RUNS).is_file():
        raise TableError(f"has no {RUNS}", folder, f"set {VARIABLE} to the artifact's tables")
    artifact = Records("slant", folder / RUNS)
    rows: dict[str, dict[str, Any]] = {}
    for number, line in _lines(artifact, ("run", "input_file", "makespan_s")):
        row = artifact.record(number, partial(_run, line, app))
        if row is not None:
            rows[line["run"]] = row
    for row, line in _joined(rows, folder / PHASES):
        start_s, duration_s = _required(line, "start_s"), _required(line, "duration_s")
        artifact.phases.append(
            {name: row[name] for name in ("cell_key", "app", "volume_id", "cpus")}
            | {
                "phase": f"task_{line.get('task', '')}",
                "start_s": start_s,
                "end_s": start_s + duration_s,
                "duration_s": duration_s,
                "cpu_s": None,
                "peak_rss_bytes": _bytes(line, "node_used_mem_max_kb"),
            }
        )
    traces: dict[str, list[dict[str, Any]]] = {}
    for row, line in _joined(rows, folder / TRACES):
        rss_bytes = round(_required(line, "node_used_mem_kb") * KB)
        sample = {"t_s": _required(line, "t_s"), "rss_bytes": rss_bytes, "cpu_s": None}
        traces.setdefault(row["cell_key"], []).append({"cell_key": row["cell_key"], **sample})
    for samples in traces.values():
        thin = thinned(pd.DataFrame(samples), "rss_bytes")
        artifact.traces.extend(samples[n] for n in thin.index)
    artifact.companions = [p for p in (folder / PHASES, folder / TRACES) if p.is_file()]
    return artifact


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


def _run(line: dict[str, str], app: str | None) -> ImportedRun:
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
            "peak_rss_bytes": _bytes(line, "node_used_mem_max_kb"),
            "memory_method": "vmstat_node",
        },
        labels={
            "run": line["run"],
            "dataset": line.get("dataset"),
            "modality": line.get("modality"),
            "input_size_group": line.get("input_size_group"),
            "n_volumes": _number(line, "n_volumes"),
            "file_size_bytes": _number(line, "file_size_bytes"),
            "mean_rss_bytes": _bytes(line, "node_used_mem_mean_kb"),
            "node_used_mem_min_kb": _number(line, "node_used_mem_min_kb"),
        },
    )


def _lines(table: Records, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    lines = text_lines(table.path, table.refused)
    header = next(csv.reader([next(lines, (0, ""))[1]]), [])
    missing = [name for name in needed if name not in header]
    if missing:
        raise TableError(f"has no column {', '.join(missing)}", table.path)
    for number, text in lines:
        fields = text.split(",")  # no field in these tables contains a comma
        if len(fields) != len(header):
            reason = f"{len(fields)} columns where the header has {len(header)}"
            table.refused.add(reason, [number])
        else:
            yield number, dict(zip(header, (field.strip() for field in fields), strict=True))


def _joined(
    rows: dict[str, dict[str, Any]], path: Path
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the lines of a companion table, each with the row of its run."""
    if not path.is_file():
        return
    table = Records("slant", path)
    for _, line in _lines(table, ("run",)):
        if line["run"] in rows:
            yield rows[line["run"]], line
    for number, reason in table.refused.listed():
        raise TableError(f"line {number}: {reason}", path)


def _required(line: dict[str, str], name: str) -> float:
    value = _number(line, name)
    if value is None:
        raise TableError(f"run {line['run']}: no {name}", "companion tables")
    return value


def _bytes(line: dict[str, str], name: str) -> int | None:
    size_kb = _number(line, name)
    return None if size_kb is None else round(size_kb * KB)


def _number(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    return parsed(name, text, finite) if text else None
