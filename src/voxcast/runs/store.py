"""The history of runs in files: batches of append-only parts, and folders of measured runs.

A batch is a folder, ``data/history/NAME``; a part of it is a folder ``<date>-<source>-<n>`` with
``runs.parquet``, ``phases.parquet`` and ``traces.parquet``. Parts are written atomically and never
changed afterwards. ``provenance.yaml`` of the batch is collected from the metadata of its parts.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import logging
import platform
import shutil
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import voxcast
from voxcast.errors import TableError, one_line
from voxcast.files import PARTIAL, atomic_folder, locked, write_json, write_text
from voxcast.runs.series import (
    PHASES,
    RECORD_FILE,
    RUNS,
    TRACES,
    Record,
    load_records,
    phases_of,
    read_record,
    readable,
    record_folders,
    traces_of,
    write_stage,
)
from voxcast.runs.table import ADDED, DTYPES, PHASE_DTYPES, TRACE_DTYPES, frame_of, in_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pandas as pd

PROVENANCE = "provenance.yaml"
RESERVED = "reserved.txt"  # names of batches to judge by, one a line
PACKAGES = ("antspyx", "numpy", "torch")
ACCEPTED = (
    "give a folder of data/history, recorded or imported, one of its parts, "
    "or a folder of runs such as data/runs/cpu"
)
# Tables of a part: columns, columns that identify a row, and the order of the rows.
_TABLES = {
    RUNS: (DTYPES, ["cell_key"], ["started_at", "cell_key"]),
    PHASES: (PHASE_DTYPES, ["cell_key", "phase", "start_s"], ["cell_key", "start_s"]),
    TRACES: (TRACE_DTYPES, ["cell_key", "t_s"], ["cell_key", "t_s"]),
}
# The same of a folder of runs.
_OF_RUNS: dict[str, Callable[[Path], pd.DataFrame]] = {
    RUNS: load_records,
    PHASES: lambda folder: phases_of(record_folders(folder)),
    TRACES: lambda folder: traces_of(record_folders(folder)),
}

logger = logging.getLogger(__name__)


def batch_names(history: Path) -> list[str]:
    """Return the names of the recorded batches in a history, sorted."""
    return sorted({path.parent.parent.name for path in history.glob(f"[!.]*/[!.]*/{RUNS}")})


def reserved_names(history: Path) -> frozenset[str]:
    """Return the names of the batches that are reserved for judging."""
    path = history / RESERVED
    return frozenset(path.read_text(encoding="utf-8").split() if path.is_file() else ())


def recorded_parts(batch: Path) -> list[Path]:
    """Return the parts of ``batch``, oldest first."""
    return sorted(path.parent for path in batch.glob(f"[!.]*/{RUNS}"))


def recorded_cell_keys(batch: Path) -> set[str]:
    """Return the cell keys of all runs in the parts of ``batch``."""
    tables = [read_table(part / RUNS, {"cell_key": "str"}) for part in recorded_parts(batch)]
    return {str(key) for table in tables for key in table["cell_key"]}


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


def load_history(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the runs of all parts of ``batches``, without duplicate keys, in order of start.

    Raises
    ------
    TableError
        If a batch has no part, or a part lacks a column of the history.
    """
    return _load(batches, RUNS)


def load_phases(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the phases of all runs of ``batches``, by key and start; see `load_history`."""
    return _load(batches, PHASES)


def load_traces(batches: Sequence[Path | str]) -> pd.DataFrame:
    """Read the thinned traces of all runs of ``batches``, by key and time; see `load_history`."""
    return _load(batches, TRACES)


def _load(batches: Sequence[Path | str], name: str) -> pd.DataFrame:
    parts = {Path(batch): recorded_parts(Path(batch)) for batch in batches}
    if empty := [batch for batch, recorded in parts.items() if not recorded]:
        raise TableError("has no recorded runs", empty[0], "see `voxcast measure --campaign`")
    paths = [part / name for recorded in parts.values() for part in recorded]
    return _united([read_table(path, _TABLES[name][0]) for path in paths], name)


def _united(frames: Iterable[pd.DataFrame], name: str) -> pd.DataFrame:
    """Return all rows of a kind of table, each once and in order."""
    import pandas as pd

    dtypes, unique, order = _TABLES[name]
    filled = [in_schema(frame, dtypes) for frame in frames if len(frame)]
    table = pd.concat(filled, ignore_index=True) if filled else frame_of([], dtypes)
    return table.drop_duplicates(unique).sort_values(order, kind="stable", ignore_index=True)


@dataclass(frozen=True, eq=False)
class StoredHistory:
    """Runs, phases and traces below some folders.

    A part that cannot be read is left out with a warning.

    Attributes
    ----------
    folders : tuple of Path
        As named by the user.
    parts : tuple of Path
        Parts of batches, and the tables of a stage.
    run_folders : tuple of Path
        Folders with one folder per run.
    """

    folders: tuple[Path, ...]
    parts: tuple[Path, ...]
    run_folders: tuple[Path, ...]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """All runs, without duplicate keys, in order of start.

        Raises
        ------
        TableError
            If nothing can be read.
        """
        frames = self._frames(RUNS)
        if not frames:
            raise TableError("has no part that can be read", self.folders[0])
        return _united(frames, RUNS)

    @cached_property
    def phases(self) -> pd.DataFrame:
        """The phases of the runs, by key and start."""
        return _united(self._frames(PHASES), PHASES)

    @cached_property
    def traces(self) -> pd.DataFrame:
        """The thinned traces of the runs, by key and time."""
        traces = _united(self._frames(TRACES), TRACES)
        return readable(traces, self.folders[0]).reset_index(drop=True)

    def _frames(self, name: str) -> list[pd.DataFrame]:
        frames = []
        places: list[tuple[Path, Callable[[Path], pd.DataFrame]]] = [
            *((part / name, partial(read_table, dtypes=_TABLES[name][0])) for part in self.parts),
            *((folder, _OF_RUNS[name]) for folder in self.run_folders),
        ]
        for path, read in places:
            try:
                frames.append(read(path))
            except (TableError, OSError, ValueError, KeyError) as error:
                where = "" if isinstance(error, TableError) else f"{path}: "
                logger.warning("%s%s; left out", where, one_line(error)[:400])
        return frames


def open_history(folders: Path | Sequence[Path]) -> StoredHistory:
    """Return the history in folders of any kind; nothing is read yet.

    Parameters
    ----------
    folders : Path or sequence of Path
        Batches of ``data/history``, parts of one, folders of runs, or folders of these.

    Raises
    ------
    TableError
        If a folder is missing, or has no runs.
    """
    named = (folders,) if isinstance(folders, Path) else tuple(folders)
    parts: dict[Path, None] = {}
    run_folders: dict[Path, None] = {}
    for folder in named:
        try:
            if not folder.exists():
                raise TableError("no such folder", folder, ACCEPTED)
            inside = [folder, *sorted(path for path in folder.glob("[!.]*/") if path.is_dir())]
            with_parts = {
                part: None
                for path in inside
                for part in ([path] if (path / RUNS).is_file() else recorded_parts(path))
            }
            with_runs = {path: None for path in inside if any(path.glob(f"[!.]*/{RECORD_FILE}"))}
        except OSError as error:
            raise TableError(f"cannot be read: {error.strerror}", folder, ACCEPTED) from None
        if not with_parts and not with_runs:
            raise TableError("is not a history of runs", folder, ACCEPTED)
        parts |= with_parts
        run_folders |= with_runs
    return StoredHistory(named, tuple(parts), tuple(run_folders))


def free_part(batch: Path, source: str) -> Path:
    """Return the next free ``<date>-<source>-<n>`` of ``batch``; the caller holds its lock."""
    stem = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-{source}-"
    taken = [p.name.removeprefix(stem) for p in batch.iterdir() if p.name.startswith(stem)]
    return batch / f"{stem}{1 + max((int(n) for n in taken if n.isdigit()), default=0)}"


def add_part(
    part: Path,
    runs: pd.DataFrame,
    provenance: Mapping[str, Any],
    phases: pd.DataFrame | None = None,
    traces: pd.DataFrame | None = None,
    files: Mapping[str, Any] | None = None,
) -> None:
    """Write a new part, with the provenance in its table of runs.

    Parameters
    ----------
    part : Path
        From `free_part`.
    files : mapping, optional
        Content of further JSON files by name.
    """
    runs.attrs["provenance"] = dict(provenance)
    phases = frame_of([], PHASE_DTYPES) if phases is None else phases
    traces = frame_of([], TRACE_DTYPES) if traces is None else traces
    with atomic_folder(part) as partial:
        for name, frame in ((RUNS, runs), (PHASES, phases), (TRACES, traces)):
            frame.to_parquet(partial / name, index=False, compression="zstd")
        for name, content in (files or {}).items():
            write_json(partial / name, content)


def sweep_partial(batch: Path) -> None:
    """Remove partial files of a killed process in ``batch``; the caller holds its lock."""
    for path in batch.glob(PARTIAL + "*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


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
        for folder in record_folders(runs):
            if folder.name not in recorded_keys:
                with contextlib.suppress(TableError):  # reported when the folder itself is read
                    record = read_record(folder)
                    if record.run.outcome != "failed":
                        by_host.setdefault(record.run.host_id, []).append((record, folder))
        parts = []
        for host_id, of_host in sorted(by_host.items()):
            of_host.sort(key=lambda pair: (pair[0].run.started_at, pair[0].run.cell_key))
            provenance = _provenance([record for record, _ in of_host], campaign, campaign_sha256)
            folders = [folder for _, folder in of_host]
            parts.append(free_part(batch, host_id))
            table = frame_of(vars(record.run) for record, _ in of_host)
            add_part(parts[-1], table, provenance, phases_of(folders), traces_of(folders))
        if parts or (recorded_parts(batch) and not (batch / PROVENANCE).is_file()):
            _write_provenance(batch)
    return parts


def write_recorded(
    folder: Path,
    batches: Sequence[Path | str],
    device: str,
    apps: Collection[str],
    volumes: Collection[str],
) -> pd.DataFrame:
    """Write the tables of a stage from recorded runs, in place of runs measured on this machine.

    Parameters
    ----------
    folder : Path
        Folder of the device's tables.
    batches : sequence of Path
        Recorded histories.
    apps, volumes : collection of str
        Applications and volume ids of the project; other runs are left out, with a warning.

    Returns
    -------
    DataFrame
        The runs.

    Raises
    ------
    TableError
        If a batch has no recorded runs.
    """
    runs = load_history(batches)
    runs = runs[runs["device"] == device]
    has_app = runs["app"].isin(list(apps))
    has_volume = runs["volume_id"].isin([*volumes, ""])
    notes = [] if len(runs) else [f"{device}: the recorded history has no runs on it"]
    for excluded, cause in (
        (~has_app, "applications that are not configured"),
        (has_app & ~has_volume, "volumes outside this image set"),
    ):
        if excluded.any():
            notes.append(f"{device}: {int(excluded.sum())} recorded runs are of {cause}")
    for note in notes:
        logger.info(note)
    runs = runs[has_app & has_volume].reset_index(drop=True)
    phases, traces = (
        frame[frame["cell_key"].isin(runs["cell_key"])]
        for frame in (load_phases(batches), load_traces(batches))
    )
    write_stage(folder, runs, phases, traces, notes)
    return runs


def software_versions() -> dict[str, str]:
    """Return the versions, here, of Python, voxcast and the packages that decide times."""
    versions = {"python": platform.python_version(), "voxcast": voxcast.__version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _provenance(records: Sequence[Record], campaign: str, campaign_sha256: str) -> dict[str, Any]:
    runs = [record.run for record in records]
    return {
        "runs": len(runs),
        "first_started_at": min(run.started_at for run in runs),
        "last_started_at": max(run.started_at for run in runs),
        "sittings": sorted({run.sitting for run in runs}),
        "campaign": campaign,
        "campaign_sha256": campaign_sha256,
        "machine": {k: v for k, v in records[0].content["host"].items() if k != "hostname"},
        "versions": records[0].content.get("versions", {}),
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
