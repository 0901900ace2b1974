"""The history of one folder of runs: finished records, read into one table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.files import atomic_path, canonical_json, read_json
from voxcast.records import Cell, Configuration, Phase, Profile

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

RECORD_FILE = "record.json"
PROFILES_FILE = "profiles.parquet"
PARTIAL = ".partial-"

# Nullable integers where a value may be unknown: a float would round large sizes.
DTYPES = {
    "cell_key": "str",
    "app": "str",
    "app_version": "str",
    "parameters_json": "str",
    "volume_id": "str",
    "subject": "str",
    "device": "str",
    "node_type": "str",
    "cpus": "int64",
    "gpus": "int64",
    "memory_bytes": "Int64",
    "scale": "str",
    "repeat": "int64",
    "host_class": "str",
    "outcome": "str",
    "exit_status": "Int64",
    "limit_s": "float64",
    "runtime_s": "float64",
    "cpu_s": "float64",
    "peak_rss_bytes": "int64",
    "peak_cgroup_bytes": "Int64",
    "memory_method": "str",
    "cpu_method": "str",
    "load1_before": "float64",
    "started_at": "str",
}

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int64": (int,),
    "Int64": (int, type(None)),
    "float64": (float, int, type(None)),
}


def read_record(folder: Path) -> tuple[Cell, Profile]:
    """Read the record of one run.

    Raises
    ------
    TableError
        If there is none, it is broken, or it is the record of another cell than the folder's.
    """
    try:
        record = read_json(folder / RECORD_FILE)
        cell_fields, profile_fields = dict(record["cell"]), dict(record["profile"])
        configuration = Configuration(**cell_fields.pop("configuration"))
        cell = Cell(configuration=configuration, **cell_fields)
        phases = tuple(Phase(**phase) for phase in profile_fields.pop("phases"))
        profile = Profile(phases=phases, **profile_fields)
        _row(cell, profile)
    except FileNotFoundError:
        raise TableError("holds no record of a run", folder) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TableError(f"holds a broken record ({error!r})", folder) from None
    if cell.key != folder.name:
        raise TableError("holds the record of another cell", folder)
    return cell, profile


def load_records(folder: Path) -> pd.DataFrame:
    """Read all finished runs of ``folder``, one row each, in the order they were started.

    A folder that is not a good record is named in a warning on stderr and passed over.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for run in sorted(folder.iterdir()) if folder.is_dir() else []:
        if run.is_dir() and not run.name.startswith("."):
            try:
                rows.append(_row(*read_record(run)))
            except TableError as error:
                print(f"voxcast: {error}; it is left out", file=sys.stderr)
    rows.sort(key=lambda row: (row["started_at"], row["cell_key"]))
    return pd.DataFrame(rows, columns=list(DTYPES)).astype(DTYPES)


def write_profiles(folder: Path, notes: list[str] | None = None) -> pd.DataFrame:
    """Write ``profiles.parquet`` from the records of ``folder``, also when there are none.

    Parameters
    ----------
    folder : Path
        The folder of runs; made if missing.
    notes : list of str, optional
        Why something was not measured; kept in the table as ``DataFrame.attrs["notes"]``.

    Returns
    -------
    DataFrame
        What was written.
    """
    frame = load_records(folder)
    frame.attrs["notes"] = list(notes or [])
    with atomic_path(folder / PROFILES_FILE) as partial:
        frame.to_parquet(partial, index=False)
    return frame


def _row(cell: Cell, profile: Profile) -> dict[str, Any]:
    known = vars(cell) | vars(cell.configuration) | vars(profile)
    known |= {"cell_key": cell.key, "parameters_json": canonical_json(cell.parameters)}
    row = {name: known[name] for name in DTYPES}
    for name, dtype in DTYPES.items():
        if not isinstance(row[name], _KINDS[dtype]):
            raise TypeError(f"{name} is {row[name]!r}")
    return row
