"""The 312 published runs of SLANT (Gainaru et al., TPDS 32(5), doi 10.1109/TPDS.2020.3039728).

The tables are derived from that artifact: ``slant_runs.csv``, ``slant_drd_phases.csv`` and
``slant_memory_30s.csv``; the latter two may be missing. Peak memory is of the whole node, by
vmstat every 2 s, and includes about 1.8 GB of the idle system.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pandas as pd

from voxcast.errors import TableError, one_line
from voxcast.runs import csv_table
from voxcast.runs.csv_table import Column, Line
from voxcast.runs.imported import ImportedRun, Records, finite
from voxcast.runs.series import thinned
from voxcast.runs.table import PHASE_DTYPES, TRACE_DTYPES, frame_of

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
    "outcome": "completed",
    "memory_method": "vmstat_node",
}
_COLUMNS = {
    "volume_id": Column("input_file"),
    "subject": Column("subject"),
    "runtime_s": Column("makespan_s"),
    "peak_rss_bytes": Column("node_used_mem_max_kb", "kB"),
}
_TEXTS = ("run", "dataset", "modality", "input_size_group")
_NUMBERS = ("n_volumes", "file_size_bytes", "node_used_mem_min_kb")


def read(path: Path, app: str | None = None) -> Records:
    """Read the tables of the folder ``path``, or of the folder that contains the file ``path``.

    Raises
    ------
    TableError
        If the table of runs is missing, or a table of phases or samples is broken.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / RUNS).is_file():
        raise TableError(f"has no {RUNS}", folder, f"set {VARIABLE} to the artifact's tables")
    artifact = Records("slant", folder / RUNS)
    needed = (("run",), ("input_file",), ("makespan_s",))
    for number, line in csv_table.lines(artifact, ",", needed, "restore it"):
        artifact.record(number, partial(_run, line, app))
    artifact.companions = [p for p in (folder / PHASES, folder / TRACES) if p.is_file()]
    runs = frame_of(artifact.rows).assign(run=[name for name, _ in artifact.names])
    try:
        if (folder / PHASES).is_file():
            artifact.phases = _phases(pd.read_csv(folder / PHASES, dtype={"run": str}), runs)
        if (folder / TRACES).is_file():
            artifact.traces = _traces(pd.read_csv(folder / TRACES, dtype={"run": str}), runs)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TableError(f"cannot be read: {one_line(error)[:120]}", folder) from error
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


def _run(line: Line, app: str | None) -> ImportedRun:
    values = _NODE | line.values(_COLUMNS)
    values["app"] = app or values["app"]
    image = line.text("input_file")
    values["volume_id"] = image.removesuffix(".gz").removesuffix(".nii")
    return ImportedRun(
        identity=[line.text("run"), image, line.text("makespan_s")],
        values=values,
        labels={name: line.text(name) for name in _TEXTS}
        | {name: line.read(name, finite) for name in _NUMBERS}
        | {"mean_rss_bytes": line.read("node_used_mem_mean_kb", lambda kb: finite(kb) * KB)},
        name=line.text("run"),
        unread=line.unread,
    )


def _phases(phases: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    named = runs[["run", "cell_key", "app", "volume_id", "cpus"]]
    phases = phases.merge(named, on="run").assign(
        phase=lambda p: "task_" + p["task"].astype(str),
        end_s=lambda p: p["start_s"] + p["duration_s"],
        peak_rss_bytes=lambda p: p["node_used_mem_max_kb"] * KB,
        cpu_s=float("nan"),
    )
    return phases[list(PHASE_DTYPES)].astype(PHASE_DTYPES)


def _traces(samples: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    samples = samples.merge(runs[["run", "cell_key"]], on="run")
    samples = samples.assign(rss_bytes=samples["node_used_mem_kb"] * KB, cpu_s=float("nan"))
    parts = [thinned(part, "rss_bytes") for _, part in samples.groupby("cell_key", sort=False)]
    return pd.concat([samples[:0], *parts])[list(TRACE_DTYPES)].astype(TRACE_DTYPES)
