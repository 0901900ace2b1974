"""The 312 published runs of SLANT (Gainaru et al., TPDS 32(5), doi 10.1109/TPDS.2020.3039728).

The tables are those derived from that artifact: ``slant_runs.csv``, ``slant_drd_phases.csv`` and
``slant_memory_30s.csv``; the latter two may be missing. Peak memory is that of the whole node, by
vmstat every 2 s, and counts about 1.8 GB of the idle system.
"""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.history.imports.lines import text_lines
from voxcast.history.imports.reading import Found, Reading, parsed
from voxcast.history.thinning import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = "slant"
VARIABLE = "VOXCAST_SLANT_ARTIFACT"
RUNS, PHASES, TRACES = "slant_runs.csv", "slant_drd_phases.csv", "slant_memory_30s.csv"
# The tables say kB and their authors publish GB by powers of ten. vmstat's own unit is 1024 bytes
# unless told otherwise, so true sizes may be 2.4 % larger throughout.
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


def read(path: Path, app: str | None = None) -> Reading:
    """Read the tables of the folder ``path``, or of the folder around the file ``path``.

    Raises
    ------
    TableError
        If there is no such table.
    """
    folder = path if path.is_dir() else path.parent
    runs = folder / RUNS
    if not runs.is_file():
        raise TableError(f"has no {RUNS}", folder, f"set {VARIABLE} to the artifact's tables")
    import pandas as pd

    reading = Reading(SOURCE, runs)
    rows: dict[str, dict[str, Any]] = {}
    for number, line in _records(reading, ("run", "input_file", "makespan_s")):
        row = reading.record(number, lambda line=line: _found(line, app))  # type: ignore[misc]
        if row is not None:
            rows[line["run"]] = row
    for row, line in _beside(reading, rows, folder / PHASES):
        reading.phases.append(_phase(row, line))
    traces: dict[str, list[dict[str, Any]]] = {}
    for row, line in _beside(reading, rows, folder / TRACES):
        traces.setdefault(row["cell_key"], []).append(_sample(row, line))
    for samples in traces.values():
        thin = thinned(pd.DataFrame(samples), "rss_bytes")
        reading.traces.extend(samples[n] for n in thin.index)
    reading.beside = [path for path in (folder / PHASES, folder / TRACES) if path.is_file()]
    return reading


def folder() -> Path:
    """Return the folder that the environment names.

    Raises
    ------
    TableError
        If it names none.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise TableError("no folder of the artifact given", VARIABLE, "set it, or name the folder")
    return Path(named)


def _found(line: dict[str, str], app: str | None) -> Found:
    peak, mean = (_number(line, f"node_used_mem_{which}_kb") for which in ("max", "mean"))
    image = line["input_file"]
    return Found(
        identity=[line["run"], image, line["makespan_s"]],
        known=_NODE
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
    start, duration = _needed(line, "start_s"), _needed(line, "duration_s")
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
        "t_s": _needed(line, "t_s"),
        "rss_bytes": round(_needed(line, "node_used_mem_kb") * KB),
        "cpu_s": None,
    }


def _records(reading: Reading, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    lines = text_lines(reading)
    header = next(csv.reader([next(lines, (0, ""))[1]]), [])
    missing = [name for name in needed if name not in header]
    if missing:
        raise TableError(f"has no column {', '.join(missing)}", reading.path)
    for number, text in lines:
        fields = text.split(",")  # no name in these tables holds a comma
        if len(fields) != len(header):
            reading.refuse(number, f"{len(fields)} columns where the header has {len(header)}")
        else:
            yield number, dict(zip(header, (field.strip() for field in fields), strict=True))


def _beside(
    reading: Reading, rows: dict[str, dict[str, Any]], path: Path
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Give the lines of a table beside the runs that belong to one of them.

    Raises
    ------
    TableError
        If a line cannot be read: these tables are derived, so they are right or the wrong ones.
    """
    if not path.is_file():
        return
    own = Reading(SOURCE, path)
    for _, line in _records(own, ("run",)):
        if line["run"] in rows:
            yield rows[line["run"]], line
    if own.bad:
        raise TableError(f"line {own.bad[0].line}: {own.bad[0].reason}", path)


def _needed(line: dict[str, str], name: str) -> float:
    value = _number(line, name)
    if value is None:
        raise TableError(f"run {line['run']}: no {name}", "tables beside the runs")
    return value


def _number(line: dict[str, str], name: str) -> float | None:
    text = line.get(name, "")
    if not text:
        return None
    value = parsed(name, text, float)
    if not math.isfinite(value):
        raise TableError(f"{name} is {text[:40]}")
    return value
