"""Phases and traces of runs, which parts keep in tables of their own."""

from __future__ import annotations

import logging
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import TableError, one_line
from voxcast.files import atomic_path
from voxcast.history.run_folders import (
    RECORD_FILE,
    SAMPLES_FILE,
    Record,
    load_records,
    read_record,
)
from voxcast.history.run_table import PHASE_DTYPES, TRACE_DTYPES, frame_of
from voxcast.history.thinning import thinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

RUNS, PHASES, TRACES = "runs.parquet", "phases.parquet", "traces.parquet"

logger = logging.getLogger(__name__)


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
    return phases_of(path.parent for path in _records(folder))


def phases_of(runs: Iterable[Path]) -> pd.DataFrame:
    """Read the phases of runs from the records in their folders; see `phases_in`."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        try:
            rows += _rows(read_record(run))
        except TableError as error:
            logger.warning("%s; left out", error)
    return frame_of(rows, PHASE_DTYPES)


def traces_in(folder: Path) -> pd.DataFrame:
    """Read the traces of all runs in ``folder``, from its table or from the samples of its runs.

    Returns
    -------
    DataFrame
        Columns of `TRACE_DTYPES`, thinned. Runs without a readable trace have no rows.
    """
    import pandas as pd

    if (folder / TRACES).is_file():
        return pd.read_parquet(folder / TRACES)
    return traces_of(path.parent for path in _records(folder))


def traces_of(runs: Iterable[Path]) -> pd.DataFrame:
    """Read the traces of runs from the samples in their folders; see `traces_in`."""
    import pandas as pd

    frames = [frame_of([], TRACE_DTYPES)]
    for run in runs:
        path = run / SAMPLES_FILE
        try:
            with np.load(path) as arrays:
                columns = {name: arrays[name] for name in ("t_s", "rss_bytes", "cpu_s")}
            samples = readable(pd.DataFrame(columns).assign(cell_key=run.name), path)
            frames.append(thinned(samples, "rss_bytes")[list(TRACE_DTYPES)].astype(TRACE_DTYPES))
        except FileNotFoundError:
            continue
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            logger.warning("%s: no trace (%s); left out", path, one_line(error)[:120])
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def readable(samples: pd.DataFrame, where: object) -> pd.DataFrame:
    """Return the samples that have a time and a memory; a warning counts the others."""
    values = samples[["t_s", "rss_bytes"]].to_numpy(dtype=float)
    is_readable: NDArray[np.bool_] = np.isfinite(values).all(axis=1)
    if n_unreadable := int((~is_readable).sum()):
        logger.warning(
            "%s: %d of %d samples have no time or memory; left out",
            where, n_unreadable, len(samples),
        )  # fmt: skip
    return samples.loc[is_readable]


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
    runs, folders = load_records(folder), [path.parent for path in _records(folder)]
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


def _records(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"[!.]*/{RECORD_FILE}"))


def _rows(record: Record) -> list[dict[str, Any]]:
    run = record.run
    names = {"cell_key": run.cell_key, "app": run.app, "volume_id": run.volume_id}
    return [
        {
            **names,
            **vars(phase),
            "cpus": run.cpus,
            "phase": phase.name,
            "duration_s": phase.duration_s,
        }
        for phase in record.phases
    ]
