"""Folders of measured runs, one folder per run, read into one table."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import atomic_path, canonical_json, read_json, sha256_of
from voxcast.history.index import MIN_RECORDS, Stamp, read_index, stamps, write_index
from voxcast.history.run_table import checked_row, frame_of
from voxcast.records import MEASURED, Cell, Profile, of_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

RECORD_FILE = "record.json"
PROFILES_FILE = "profiles.parquet"
TRACES = "traces"  # folder of traces of communication, beside the record or in the results
SAMPLES_FILE, SAMPLES_JSON = "samples.parquet", "samples.json"  # the latter without pyarrow

logger = logging.getLogger(__name__)


def read_record(folder: Path) -> tuple[dict[str, Any], Cell, Profile]:
    """Read a record and return it with its cell and profile; errors as in `read_row`."""
    return _read(folder)[:3]


def traces_of_run(folder: Path) -> Path | None:
    """Return the traces of communication of a recorded run, or None if it was not traced."""
    places = (folder / TRACES, folder / "out" / TRACES)
    return next((place for place in places if place.is_dir()), None)


def read_row(folder: Path) -> dict[str, Any]:
    """Read the record of one run as a row of the history.

    Raises
    ------
    TableError
        If the record is missing, broken, or does not belong to the cell of the folder.
    """
    return _read(folder)[3]


def _read(folder: Path) -> tuple[dict[str, Any], Cell, Profile, dict[str, Any]]:
    try:
        record = read_json(folder / RECORD_FILE)
        cell = of_fields(Cell, record["cell"])
        profile = of_fields(Profile, record["profile"])
        row = _row(folder.name, record, cell, profile)
    except FileNotFoundError:
        raise TableError("has no record of a run", folder) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(f"has a broken record ({error!r})", folder) from None
    # The recorded cell is hashed: fields added to `Cell` later are not part of older keys.
    if sha256_of({k: v for k, v in record["cell"].items() if k != "subject"}) != folder.name:
        raise TableError("has the record of another cell", folder)
    return record, cell, profile, row


def record_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the row of every finished run of ``folder`` by its cell key.

    A folder without a valid record is skipped with a warning. Records that were read before come
    from the index of the folder.
    """
    indexed = read_index(folder)
    rows: dict[str, tuple[Stamp, dict[str, Any]]] = {}
    n_read = 0
    for name, stamp in sorted(stamps(folder, RECORD_FILE).items()):
        if stamp is not None and name in indexed and indexed[name][0] == stamp:
            rows[name] = indexed[name]
            continue
        try:
            row = read_row(folder / name)
        except TableError as error:
            logger.warning("%s; left out", error)
            continue
        if stamp is not None:
            rows[name] = (stamp, row)
            n_read += 1
    if n_read >= MIN_RECORDS:
        with contextlib.suppress(OSError):  # a full or read-only disk gets no index
            write_index(folder, rows)
    return {name: row for name, (_, row) in rows.items()}


def load_records(folder: Path) -> pd.DataFrame:
    """Read all finished runs of ``folder``, one row per run, in order of start.

    A folder without a valid record is skipped with a warning.
    """
    rows = sorted(
        record_rows(folder).values(), key=lambda row: (row["started_at"], row["cell_key"])
    )
    return frame_of(rows)


def write_profiles(
    folder: Path,
    notes: list[str] | None = None,
    frame: pd.DataFrame | None = None,
    runs_left: int = 0,
) -> pd.DataFrame:
    """Write ``profiles.parquet`` from the records of ``folder``, even if there are none.

    Parameters
    ----------
    folder : Path
        Folder of runs; created if missing.
    notes : list of str, optional
        Reasons why runs were not measured; stored in the table as ``DataFrame.attrs["notes"]``.
    frame : DataFrame, optional
        Runs recorded elsewhere, in place of the records of the folder.
    runs_left : int
        Planned runs for which the time did not suffice; stored as ``attrs["runs_left"]``.

    Returns
    -------
    DataFrame
        The table that was written.
    """
    frame = load_records(folder) if frame is None else frame
    frame.attrs["notes"] = list(notes or [])
    frame.attrs["runs_left"] = runs_left
    with atomic_path(folder / PROFILES_FILE) as partial:
        frame.to_parquet(partial, index=False)
    return frame


def _row(key: str, record: Mapping[str, Any], cell: Cell, profile: Profile) -> dict[str, Any]:
    values = vars(cell) | vars(cell.configuration) | vars(profile)
    values |= record["host"] | record["probes"]
    values |= {
        "cell_key": key,
        "parameters_json": canonical_json(cell.parameters),
        "recipe_json": canonical_json(record["recipe"]) if record["recipe"] else "",
        "limit_s": profile.time_limit_s,
        "sitting": record["sitting"],
        "source": MEASURED,
    }
    return checked_row(values)
