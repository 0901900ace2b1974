"""A folder of measured runs, one folder each: finished records, read into one table."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import atomic_path, canonical_json, read_json, sha256_of
from voxcast.history.index import WORTH_WRITING, Stamp, read_index, stamps, write_index
from voxcast.history.run_table import checked_row, frame_of
from voxcast.records import Cell, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

RECORD_FILE = "record.json"
PROFILES_FILE = "profiles.parquet"
SAMPLES_FILE, SAMPLES_JSON = "samples.parquet", "samples.json"  # the latter without pyarrow


def read_record(folder: Path) -> tuple[dict[str, Any], Cell, Profile]:
    """Read the record of one run: all of it, and its cell and profile; errors as `read_row`."""
    return _read(folder)[:3]


def read_row(folder: Path) -> dict[str, Any]:
    """Read the record of one run as a row of the history.

    Raises
    ------
    TableError
        If there is none, it is broken, or it is the record of another cell than the folder's.
    """
    return _read(folder)[3]


def _read(folder: Path) -> tuple[dict[str, Any], Cell, Profile, dict[str, Any]]:
    try:
        record = read_json(folder / RECORD_FILE)
        cell = Cell.from_record(record["cell"])
        profile = Profile.from_record(record["profile"])
        row = _row(folder.name, record, cell, profile)
    except FileNotFoundError:
        raise TableError("holds no record of a run", folder) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(f"holds a broken record ({error!r})", folder) from None
    # By what was written, not by `Cell.key`: a field that came later has no part in old names.
    if sha256_of({k: v for k, v in record["cell"].items() if k != "subject"}) != folder.name:
        raise TableError("holds the record of another cell", folder)
    return record, cell, profile, row


def record_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the row of every finished run of ``folder`` by its cell key.

    A folder that is not a good record is named in a warning on stderr and passed over. Records
    that have been read before come from the index of the folder.
    """
    indexed = read_index(folder)
    found: dict[str, tuple[Stamp, dict[str, Any]]] = {}
    read = 0
    for name, stamp in sorted(stamps(folder, RECORD_FILE).items()):
        if stamp is not None and name in indexed and indexed[name][0] == stamp:
            found[name] = indexed[name]
            continue
        try:
            row = read_row(folder / name)
        except TableError as error:
            print(f"voxcast: {error}; it is left out", file=sys.stderr)
            continue
        if stamp is not None:
            found[name] = (stamp, row)
            read += 1
    if read >= WORTH_WRITING:
        with contextlib.suppress(OSError):  # on a full or read-only disk we do without
            write_index(folder, found)
    return {name: row for name, (_, row) in found.items()}


def load_records(folder: Path) -> pd.DataFrame:
    """Read all finished runs of ``folder``, one row each, in the order they were started.

    A folder that is not a good record is named in a warning on stderr and passed over.
    """
    rows = sorted(
        record_rows(folder).values(), key=lambda row: (row["started_at"], row["cell_key"])
    )
    return frame_of(rows)


def write_profiles(
    folder: Path, notes: list[str] | None = None, frame: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Write ``profiles.parquet`` from the records of ``folder``, also when there are none.

    Parameters
    ----------
    folder : Path
        The folder of runs; made if missing.
    notes : list of str, optional
        Why something was not measured; kept in the table as ``DataFrame.attrs["notes"]``.
    frame : DataFrame, optional
        Instead of the records, runs that were recorded elsewhere.

    Returns
    -------
    DataFrame
        What was written.
    """
    frame = load_records(folder) if frame is None else frame
    frame.attrs["notes"] = list(notes or [])
    with atomic_path(folder / PROFILES_FILE) as partial:
        frame.to_parquet(partial, index=False)
    return frame


def _row(key: str, record: Mapping[str, Any], cell: Cell, profile: Profile) -> dict[str, Any]:
    known = vars(cell) | vars(cell.configuration) | vars(profile)
    known |= record["host"] | record["probes"]
    known |= {
        "cell_key": key,
        "parameters_json": canonical_json(cell.parameters),
        "recipe_json": canonical_json(record["recipe"]) if record["recipe"] else "",
        "limit_s": profile.time_limit_s,
        "sitting": record["sitting"],
        "source": "measured",
    }
    return checked_row(known)
