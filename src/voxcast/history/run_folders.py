"""Folders of measured runs, one folder per run, and the record in each."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import read_json, sha256_of
from voxcast.history.run_table import frame_of
from voxcast.records import Cell, Phase, Run, of_fields

if TYPE_CHECKING:
    import pandas as pd

MEASURED = Path("data/measured")  # of a project: a folder of runs for each device
RECORD_FILE = "run.json"
SAMPLES_FILE = "samples.npz"  # written and read with NumPy alone
TRACES = "traces"  # folder of traces of communication, beside the record or in the results

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """The record of a run: its row of the history, its cell, its phases, and all it holds."""

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


def records_in(folder: Path) -> dict[str, Record]:
    """Return the record of every finished run of ``folder`` by its cell key.

    A folder without a valid record is skipped with a warning.
    """
    records = {}
    for path in sorted(folder.glob("[!.]*/")):
        try:
            records[path.name] = read_record(path)
        except TableError as error:
            logger.warning("%s; left out", error)
    return records


def runs_in(folder: Path) -> dict[str, Run]:
    """Return every finished run of ``folder`` by its cell key; see `records_in`."""
    return {key: record.run for key, record in records_in(folder).items()}


def load_records(folder: Path) -> pd.DataFrame:
    """Read all finished runs of ``folder``, one row per run, in order of start."""
    runs = sorted(runs_in(folder).values(), key=lambda run: (run.started_at, run.cell_key))
    return frame_of(vars(run) for run in runs)


def traces_of_run(folder: Path) -> Path | None:
    """Return the traces of communication of a recorded run, or None if it was not traced."""
    places = (folder / TRACES, folder / "out" / TRACES)
    return next((place for place in places if place.is_dir()), None)
