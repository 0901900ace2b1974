"""The registry of a project, read from MLflow's SQLite database without MLflow.

The database is opened read-only, so it may belong to somebody else, on a file system that cannot
be written to.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

SQLITE = "sqlite:///"
TRAIN = "train a model with `voxcast learn`"
REPAIR = (
    "bring back a copy; or move it away and run `voxcast learn`, which registers a model again"
)
ARTIFACTS = "mlruns"  # folder of the models' files, beside the database
_WAIT_S = 10.0  # for a writer
# The tables and columns of MLflow 3. Versions that were deleted keep their row.
_ALIAS = """
    SELECT versions.version, versions.storage_location, versions.source
    FROM registered_model_aliases AS aliases
    JOIN model_versions AS versions
    ON versions.name = aliases.name AND versions.version = aliases.version
    WHERE aliases.name = ? AND aliases.alias = ? AND versions.current_stage != 'Deleted_Internal'
"""
_VERSIONS = """
    SELECT version FROM model_versions
    WHERE name = ? AND current_stage != 'Deleted_Internal' ORDER BY version
"""
_TABLES = "SELECT version_num FROM alembic_version, registered_model_aliases LIMIT 1"


@dataclass(frozen=True)
class StoredVersion:
    """A version of a registered model.

    Attributes
    ----------
    number : str
        Its number.
    location : str
        Where its files are, as MLflow recorded it.
    folder : Path or None
        Where they are on this machine, if they are.
    """

    number: str
    location: str
    folder: Path | None


def database_of(uri: str) -> Path | None:
    """Return the database file of a tracking address, or None if it is another kind of address.

    Raises
    ------
    ModelError
        If the address is a database file that does not exist.
    """
    if not uri.startswith(SQLITE) or "?" in uri:
        return None
    if is_missing(uri):
        raise ModelError("no such registry", uri, TRAIN)
    return Path(uri.removeprefix(SQLITE))


def is_missing(uri: str) -> bool:
    """Whether a tracking address is that of a database file which does not exist."""
    return uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file()


def check(database: Path) -> None:
    """Check that a database can be read and has the tables of a registry.

    Raises
    ------
    ModelError
        If it cannot, is damaged, or is of another release of MLflow.
    """
    _rows(database, _TABLES, ())


def version_with_alias(database: Path, name: str, alias: str) -> StoredVersion | None:
    """Return the version that an alias of a model points to, or None if there is none.

    Raises
    ------
    ModelError
        As `check`, or if several workspaces have such a model.
    """
    check(database)
    versions = _rows(database, _ALIAS, (name, alias))
    if len(versions) > 1:
        raise ModelError(f"has several models {name!r}", database, "see MLFLOW_TRACKING_URI")
    if not versions:
        return None
    number, stored, source = versions[0]
    location = str(stored or source or "")
    return StoredVersion(str(number), location, _local_folder(location, database))


def version_numbers(database: Path, name: str) -> list[str]:
    """Return the versions of a registered model, oldest first; errors as `check`."""
    check(database)
    return [str(number) for (number,) in _rows(database, _VERSIONS, (name,))]


def _local_folder(location: str, database: Path) -> Path | None:
    """Return the folder of a model's files, or None if it is not on this machine.

    MLflow records an absolute path. A project that was moved, copied or mounted elsewhere has its
    files beside the database, which come first: the recorded path may be that of the original.
    """
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    recorded = unquote(parts.path) if parts.scheme else location
    _, artifacts, inside = recorded.partition(f"/{ARTIFACTS}/")
    beside = database.parent / ARTIFACTS / inside
    # Not Path.is_dir, which raises where a folder above may not be entered.
    folders = [beside, Path(recorded)] if artifacts and inside else [Path(recorded)]
    return next((folder for folder in folders if os.path.isdir(folder)), None)  # noqa: PTH112


def _rows(database: Path, query: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
    address = f"file:{quote(str(database.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if "no such" in str(error):  # table or column
            problem = f"is empty, or of another release of MLflow ({error})"
            fix = f"see `mlflow db upgrade`; or {REPAIR}"
            raise ModelError(problem, database, fix) from None
        raise ModelError(f"the registry cannot be read: {error}", database) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise ModelError(f"the registry is damaged: {error}", database, REPAIR) from None
