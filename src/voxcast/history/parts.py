"""Recorded campaigns: append-only parts of a history that is stored with the project.

A batch is a folder, ``data/history/NAME``; a part of it is a folder ``<date>-<host_id>-<n>`` with
``runs.parquet``, ``phases.parquet`` and ``traces.parquet``. Parts are written atomically and never
changed afterwards. ``provenance.yaml`` of the batch is collected from the metadata of its parts.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import TableError, one_line
from voxcast.files import PARTIAL, atomic_folder, locked, write_text
from voxcast.history.run_folders import RECORD_FILE, Record, read_record
from voxcast.history.run_series import PHASES, TRACES, phases_of, traces_of
from voxcast.history.run_table import (
    ADDED,
    DTYPES,
    PHASE_DTYPES,
    TRACE_DTYPES,
    frame_of,
    in_schema,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

RUNS = "runs.parquet"
PROVENANCE = "provenance.yaml"
PACKAGES = ("antspyx", "numpy", "torch")


def collect(
    runs: Path, batch: Path, *, campaign: str = "", campaign_sha256: str = ""
) -> list[Path]:
    """Record the new runs of a folder in ``batch``, as one new part per host.

    Failed runs are left out: they have no valid time or memory and are measured again.

    Parameters
    ----------
    runs : Path
        Folder of runs, one folder per run.
    batch : Path
        Created if missing.
    campaign, campaign_sha256 : str
        Name of the campaign and hash of its settings, for the provenance.

    Returns
    -------
    list of Path
        The new parts; empty if there were no new runs.
    """
    with locked(batch):
        sweep_partial(batch)
        recorded_keys = recorded_cell_keys(batch)
        by_host: dict[str, list[tuple[Record, Path]]] = {}
        for run in sorted(runs.iterdir()) if runs.is_dir() else []:
            if run.name not in recorded_keys and (run / RECORD_FILE).is_file():
                with contextlib.suppress(TableError):  # reported when the folder itself is read
                    record = read_record(run)
                    if record.run.outcome != "failed":
                        by_host.setdefault(record.run.host_id, []).append((record, run))
        new_parts = []
        for host_id, host_runs in sorted(by_host.items()):
            provenance = _provenance(host_runs, campaign, campaign_sha256)
            new_parts.append(_write_part(batch, host_id, host_runs, provenance))
        if new_parts or (recorded_parts(batch) and not (batch / PROVENANCE).is_file()):
            _write_provenance(batch)
    return new_parts


def recorded_cell_keys(batch: Path) -> set[str]:
    """Return the cell keys of all runs in the parts of ``batch``."""
    tables = [read_table(part / RUNS, {"cell_key": "str"}) for part in recorded_parts(batch)]
    return {str(key) for table in tables for key in table["cell_key"]}


def free_part(batch: Path, source: str) -> Path:
    """Return the next free ``<date>-<source>-<n>`` of ``batch``; the caller holds its lock."""
    stem = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-{source}-"
    taken = [p.name.removeprefix(stem) for p in batch.iterdir() if p.name.startswith(stem)]
    return batch / f"{stem}{1 + max((int(n) for n in taken if n.isdigit()), default=0)}"


def write_tables(
    folder: Path,
    runs: pd.DataFrame,
    phases: pd.DataFrame,
    traces: pd.DataFrame,
    provenance: Mapping[str, Any],
) -> None:
    """Write the tables of a part into ``folder``, with the provenance in the table of runs."""
    runs.attrs["provenance"] = dict(provenance)
    for name, frame in ((RUNS, runs), (PHASES, phases), (TRACES, traces)):
        frame.to_parquet(folder / name, index=False, compression="zstd")


def sweep_partial(batch: Path) -> None:
    """Remove partial files of a killed process in ``batch``; the caller holds its lock."""
    for path in batch.glob(PARTIAL + "*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def load_history(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the runs of all parts of ``batches``, without duplicate keys, in order of start.

    Raises
    ------
    TableError
        If a batch has no part, or a part lacks a column of the history.
    """
    frame = _load(batches, RUNS, DTYPES).drop_duplicates("cell_key")
    return frame.sort_values(["started_at", "cell_key"], ignore_index=True)


def load_phases(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the phases of all runs of ``batches``, by key and start; see `load_history`."""
    frame = _load(batches, PHASES, PHASE_DTYPES)
    frame = frame.drop_duplicates(["cell_key", "phase", "start_s"])
    return frame.sort_values(["cell_key", "start_s"], kind="stable", ignore_index=True)


def load_traces(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the thinned traces of all runs of ``batches``, by key and time; see `load_history`."""
    frame = _load(batches, TRACES, TRACE_DTYPES).drop_duplicates(["cell_key", "t_s"])
    return frame.sort_values(["cell_key", "t_s"], kind="stable", ignore_index=True)


def _load(batches: Sequence[Path | str], name: str, dtypes: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    frames = []
    for batch in map(Path, batches):
        parts = recorded_parts(batch)
        if not parts:
            raise TableError("has no recorded runs", batch, "see voxcast campaign run")
        frames += [read_table(part / name, dtypes) for part in parts]
    return pd.concat(frames, ignore_index=True) if frames else frame_of([], dtypes)


def read_table(path: Path, dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Read one table of a part, with the columns and types of the history.

    Columns that are newer than the part are unknown.

    Raises
    ------
    TableError
        If it is missing or damaged, or lacks a column.
    """
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
        if missing := sorted(set(dtypes) - set(frame.columns) - set(ADDED)):
            raise TableError(f"lacks the column {missing[0]}", path)
        return in_schema(frame, dtypes)
    except (OSError, ValueError, TypeError) as error:
        problem = f"a part that cannot be read ({one_line(error)[:120]})"
        raise TableError(problem, path, "move that part out of the history") from None


def recorded_parts(batch: Path) -> list[Path]:
    """Return the parts of ``batch``, oldest first."""
    return sorted(path.parent for path in batch.glob(f"[!.]*/{RUNS}"))


def _write_part(
    batch: Path,
    host_id: str,
    host_runs: Sequence[tuple[Record, Path]],
    provenance: dict[str, Any],
) -> Path:
    ordered = sorted(host_runs, key=lambda pair: (pair[0].run.started_at, pair[0].run.cell_key))
    runs = frame_of(vars(record.run) for record, _ in ordered)
    folders = [run for _, run in ordered]
    part = free_part(batch, host_id)
    with atomic_folder(part) as partial:
        write_tables(partial, runs, phases_of(folders), traces_of(folders), provenance)
    return part


def _provenance(
    host_runs: Sequence[tuple[Record, Path]], campaign: str, campaign_sha256: str
) -> dict[str, Any]:
    runs = [record.run for record, _ in host_runs]
    versions = {"python": platform.python_version(), "voxcast": voxcast.__version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "runs": len(runs),
        "first_started_at": min(run.started_at for run in runs),
        "last_started_at": max(run.started_at for run in runs),
        "sittings": sorted({run.sitting for run in runs}),
        "campaign": campaign,
        "campaign_sha256": campaign_sha256,
        "machine": {k: v for k, v in host_runs[0][0].content["host"].items() if k != "hostname"},
        "versions": versions,
    }


def _write_provenance(batch: Path) -> None:
    import pyarrow.parquet
    import yaml

    provenance_by_part = {}
    for part in recorded_parts(batch):
        metadata = pyarrow.parquet.read_schema(part / RUNS).pandas_metadata or {}
        provenance_by_part[part.name] = (metadata.get("attributes") or {}).get("provenance", {})
    text = yaml.safe_dump({"parts": provenance_by_part}, sort_keys=False, allow_unicode=True)
    write_text(batch / PROVENANCE, f"# Provenance of these runs; written with each part.\n{text}")
