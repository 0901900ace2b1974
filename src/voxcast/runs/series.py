"""Folders of measured runs: the record, the phases and the trace of each run.

The folder of a run is named by the key of its cell and has a record, ``run.json``, and samples of
its memory. A recorded trace is thinned to at most `MAX_SAMPLES` samples.
"""

from __future__ import annotations

import logging
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path, read_json, sha256_of
from voxcast.records import Cell, Phase, Run, of_fields
from voxcast.runs.table import PHASE_DTYPES, TRACE_DTYPES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

MEASURED = Path("data/measured")  # of a project: a folder of runs for each device
RECORD_FILE = "run.json"
SAMPLES_FILE = "samples.npz"  # written and read with NumPy alone
TRACES_FOLDER = "traces"  # of communication, beside the record or in the results
RUNS, PHASES, TRACES = "runs.parquet", "phases.parquet", "traces.parquet"
MAX_SAMPLES = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """The record of a run: its row of the history, its cell, its phases, and its whole content."""

    run: Run
    cell: Cell
    phases: tuple[Phase, ...]
    content: dict[str, Any]


def read_record(folder: Path) -> Record:
    """Read the record of one run.

    Raises
    ------
    TableError
        If the record is missing, broken, or does not belong to the cell of the folder.
    """
    try:
        content = read_json(folder / RECORD_FILE)
        record = Record(
            of_fields(Run, content["run"]),
            of_fields(Cell, content["cell"]),
            tuple(of_fields(Phase, fields) for fields in content["phases"]),
            content,
        )
        # The recorded cell is hashed: fields added to `Cell` later are not part of older keys.
        key = sha256_of({k: v for k, v in content["cell"].items() if k != "subject"})
    except FileNotFoundError:
        raise TableError("has no record of a run", folder) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(f"has a broken record ({error!r})", folder) from None
    if key != folder.name or record.run.cell_key != key:
        raise TableError("has the record of another cell", folder)
    return record


def record_folders(folder: Path) -> list[Path]:
    """Return the folders of finished runs in ``folder``, by key."""
    return sorted(path.parent for path in folder.glob(f"[!.]*/{RECORD_FILE}"))


def _records(folders: Iterable[Path]) -> dict[str, Record]:
    records = {}
    for folder in folders:
        try:
            records[folder.name] = read_record(folder)
        except TableError as error:
            logger.warning("%s; left out", error)
    return records


def runs_in(folder: Path) -> dict[str, Run]:
    """Return every finished run of ``folder`` by its cell key.

    A folder without a valid record is skipped with a warning.
    """
    return {key: record.run for key, record in _records(sorted(folder.glob("[!.]*/"))).items()}


def load_records(folder: Path) -> pd.DataFrame:
    """Read all finished runs of ``folder``, one row per run, in order of start."""
    runs = sorted(runs_in(folder).values(), key=lambda run: (run.started_at, run.cell_key))
    return frame_of(vars(run) for run in runs)


def traces_of_run(folder: Path) -> Path | None:
    """Return the traces of communication of a recorded run, or None if it was not traced."""
    places = (folder / TRACES_FOLDER, folder / "out" / TRACES_FOLDER)
    return next((place for place in places if place.is_dir()), None)


def phases_in(folder: Path) -> pd.DataFrame:
    """Read the phases of all runs in ``folder``, from its table or from the records of its runs.

    Returns
    -------
    DataFrame
        Columns of `PHASE_DTYPES`. A broken record is skipped with a warning.
    """
    import pandas as pd

    if (folder / PHASES).is_file():
        return pd.read_parquet(folder / PHASES)
    return phases_of(record_folders(folder))


def phases_of(folders: Iterable[Path]) -> pd.DataFrame:
    """Read the phases of runs from the records in their folders; see `phases_in`."""
    rows = [
        {
            "cell_key": record.run.cell_key,
            "app": record.run.app,
            "volume_id": record.run.volume_id,
            "cpus": record.run.cpus,
            "phase": phase.name,
            "duration_s": phase.duration_s,
            **vars(phase),
        }
        for record in _records(folders).values()
        for phase in record.phases
    ]
    return frame_of(rows, PHASE_DTYPES)


def traces_of(folders: Iterable[Path]) -> pd.DataFrame:
    """Read the thinned traces of runs from the samples in their folders.

    Returns
    -------
    DataFrame
        Columns of `TRACE_DTYPES`. Runs without a readable trace have no rows.
    """
    import pandas as pd

    frames = [frame_of([], TRACE_DTYPES)]
    for folder in folders:
        path = folder / SAMPLES_FILE
        try:
            with np.load(path) as arrays:
                columns = {name: arrays[name] for name in ("t_s", "rss_bytes", "cpu_s")}
            samples = readable(pd.DataFrame(columns).assign(cell_key=folder.name), path)
            frames.append(thinned(samples, "rss_bytes")[list(TRACE_DTYPES)].astype(TRACE_DTYPES))
        except FileNotFoundError:
            continue
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            logger.warning("%s: no trace (%s); left out", path, one_line(error)[:120])
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def readable(samples: pd.DataFrame, where: object) -> pd.DataFrame:
    """Return the samples with a time and a memory; a warning counts all others."""
    values = samples[["t_s", "rss_bytes"]].to_numpy(dtype=float)
    is_readable: NDArray[np.bool_] = np.isfinite(values).all(axis=1)
    if n_unreadable := int((~is_readable).sum()):
        logger.warning(
            "%s: %d of %d samples have no time or memory; left out",
            where, n_unreadable, len(samples),
        )  # fmt: skip
    return samples.loc[is_readable]


def thinned(samples: pd.DataFrame, value: str, max_samples: int = MAX_SAMPLES) -> pd.DataFrame:
    """Return at most ``max_samples`` rows: the first, the last, and the highest of each interval.

    The peak of column ``value`` is therefore always retained, at its time.

    Raises
    ------
    ValueError
        If ``max_samples`` is less than 3.
    """
    if max_samples < 3:
        raise ValueError("max_samples must be at least 3")
    if len(samples) <= max_samples:
        return samples
    values = samples[value].to_numpy()[1:-1]
    intervals = np.array_split(np.arange(1, len(samples) - 1), max_samples - 2)
    positions = [0, *(int(s[np.argmax(values[s - 1])]) for s in intervals), len(samples) - 1]
    return samples.iloc[positions]


def write_tables_of(
    folder: Path, tables: Path, notes: Sequence[str] = (), runs_left: int = 0
) -> pd.DataFrame:
    """Write the tables of all runs on record in ``folder``, even if there are none.

    Parameters
    ----------
    folder : Path
        Folder with a folder for each run.
    tables : Path
        Gets ``runs.parquet``, ``phases.parquet`` and ``traces.parquet``.
    notes, runs_left : optional
        Reasons why runs were not measured, and the number of planned runs for which the time did
        not suffice; kept in the attributes of the table of runs.

    Returns
    -------
    DataFrame
        The table of runs.
    """
    runs, folders = load_records(folder), record_folders(folder)
    write_stage(tables, runs, phases_of(folders), traces_of(folders), notes, runs_left)
    return runs


def write_stage(
    tables: Path,
    runs: pd.DataFrame,
    phases: pd.DataFrame,
    traces: pd.DataFrame,
    notes: Sequence[str] = (),
    runs_left: int = 0,
) -> None:
    """Write the tables of a stage; see `write_tables_of`."""
    runs.attrs |= {"notes": list(notes), "runs_left": runs_left}
    for name, frame in ((PHASES, phases), (TRACES, traces), (RUNS, runs)):
        with atomic_path(tables / name) as partial:
            frame.to_parquet(partial, index=False)


def phase_peak(t_s: ArrayLike, rss_bytes: ArrayLike, start_s: float, end_s: float) -> int | None:
    """Return the peak memory of a phase: of its samples; without any, of the readings at its ends.

    A phase shorter than the pause between two samples may have no sample of its own. It gets the
    run's memory at its ends, interpolated between samples. A phase with samples does not: memory
    is mostly freed where a phase ends, and the interpolation would add memory of the phase before.

    Parameters
    ----------
    t_s, rss_bytes : array-like, shape (samples,)
        Samples of the run in order of time. Samples that are not finite do not count.
    start_s, end_s : float
        The phase. An end outside the samples has the reading of the nearest sample, if that is no
        further away than the longest pause between samples.

    Returns
    -------
    int or None
        In bytes; None if the samples say nothing of the phase.

    Examples
    --------
    >>> phase_peak([0.0, 1.0, 2.0], [100, 300, 200], 1.4, 1.6)
    260
    """
    seconds, memory = np.asarray(t_s, dtype=float), np.asarray(rss_bytes, dtype=float)
    is_readable = np.isfinite(seconds) & np.isfinite(memory)
    seconds, memory = seconds[is_readable], memory[is_readable]
    if not len(seconds):
        return None
    inside = memory[(seconds >= start_s) & (seconds <= end_s)]
    if len(inside):
        return round(float(inside.max()))
    pause_s = float(np.diff(seconds).max()) if len(seconds) > 1 else 0.0
    ends = [s for s in (start_s, end_s) if seconds[0] - pause_s <= s <= seconds[-1] + pause_s]
    return round(float(np.interp(ends, seconds, memory).max())) if ends else None


def without_sample(t_s: ArrayLike, start_s: ArrayLike, end_s: ArrayLike) -> NDArray[np.bool_]:
    """Return for each phase of a run whether no sample lies in it.

    Of a trace that is thinned, so that a sample may have been dropped, only phases shorter than
    its shortest pause count as such.

    Parameters
    ----------
    t_s : array-like, shape (samples,)
        Times of the samples, in order.
    start_s, end_s : array-like, shape (phases,)
        The phases.

    Examples
    --------
    >>> without_sample([0.0, 1.0, 2.0], [0.5, 1.2], [1.5, 1.8]).tolist()
    [False, True]
    """
    seconds = np.asarray(t_s, dtype=float)
    start, end = np.asarray(start_s, dtype=float), np.asarray(end_s, dtype=float)
    if len(seconds) < 2:
        return np.zeros(len(start), dtype=bool)
    empty = np.searchsorted(seconds, end, side="right") == np.searchsorted(seconds, start)
    longest_s = np.inf if len(seconds) < MAX_SAMPLES else np.diff(seconds).min()
    return np.asarray(empty & (end - start < longest_s))


def with_peaks(phases: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return phases in which unknown peaks are read from the trace of their run.

    Parts recorded before phases had readings at their ends lack the peaks of short phases. Peaks
    of the source are kept as they are: a recorded trace is thinned, and imported ones are coarse.

    Parameters
    ----------
    phases, traces : DataFrame
        Columns as in `voxcast.runs.table`.

    Returns
    -------
    DataFrame
        The phases, with a column ``without_sample``, see `without_sample`.
    """
    import pandas as pd

    by_key = traces.sort_values("t_s").groupby("cell_key")
    samples_by_key = {str(key): samples for key, samples in by_key}
    ends = phases[["start_s", "end_s"]].to_numpy(dtype=float)
    is_without = np.zeros(len(phases), dtype=bool)
    unknown = phases["peak_rss_bytes"].isna().to_numpy()
    peaks = phases["peak_rss_bytes"].astype("Int64").array.copy()
    for key, rows in phases.groupby("cell_key").indices.items():
        if (samples := samples_by_key.get(str(key))) is not None:
            t_s, rss_bytes = samples[["t_s", "rss_bytes"]].to_numpy(dtype=float).T
            is_without[rows] = without_sample(t_s, *ends[rows].T)
            for row in (row for row in rows if unknown[row]):
                peak = phase_peak(t_s, rss_bytes, *ends[row])
                peaks[row] = pd.NA if peak is None else peak
    return phases.assign(peak_rss_bytes=peaks, without_sample=is_without)
