"""The registry of a project, read from MLflow's SQLite database without MLflow.

The database is opened read-only, so it may belong to somebody else, on a file system that cannot
be written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE = "sqlite:///"
# Of a path with % or ?: MLflow makes the folders of a path after SQLITE without decoding it.
SQLITE_DRIVER = "sqlite+pysqlite:///"
DATABASE = "mlflow.db"  # of a project
TRAIN = "train a model with `voxcast learn`"
TRAIN_BY_DEMO = "train a model with `make demo`, or with `voxcast learn` on images of yours"
REPAIR = (
    "bring back a copy; or move it away and run `voxcast learn`, which registers a model again"
)
ARTIFACTS = "mlruns"  # folder of the models' files, beside the database
_WAIT_S = 10.0  # for a writer
_COPIES = 5  # made of a database that others write to, before giving up
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
# What a writer that was killed, or that is at work, leaves beside a database.
_COMPANIONS = ("-wal", "-journal")
_CANNOT_WRITE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
# The tables and columns of MLflow 3. Versions that were deleted keep their row.
_TABLES = "SELECT version_num FROM alembic_version, registered_model_aliases LIMIT 1"
_VERSIONS = """
    SELECT version, storage_location, source, run_id FROM model_versions
    WHERE name = ? AND current_stage != 'Deleted_Internal' ORDER BY version DESC
"""
_ALIASES = "SELECT version, alias FROM registered_model_aliases WHERE name = ?"
_TAGS = "SELECT version, key, value FROM model_version_tags WHERE name = ?"


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
    run_id : str
        The run under which it was logged.
    aliases : frozenset of str
        Its aliases.
    tags : dict of str to str
        Its tags.
    """

    number: str
    location: str
    folder: Path | None
    run_id: str = ""
    aliases: frozenset[str] = frozenset()
    tags: dict[str, str] = field(default_factory=dict)


def address_of(database: Path) -> str:
    """Return the address by which MLflow finds a database.

    Raises
    ------
    ModelError
        If MLflow could not find the files of models beside it.

    Examples
    --------
    >>> address_of(Path("/data/a b/mlflow.db"))
    'sqlite:////data/a b/mlflow.db'
    >>> address_of(Path("/data/100%/mlflow.db"))
    'sqlite+pysqlite:////data/100%25/mlflow.db'
    """
    path = str(database)
    if _ESCAPE.search(path):  # MLflow decodes the paths of files too, once more than it encodes
        problem = "a path with % and two hexadecimal digits means another one to MLflow"
        raise ModelError(problem, database.parent, "rename the folder")
    encoded = path.replace("%", "%25").replace("?", "%3F")
    return f"{SQLITE if encoded == path else SQLITE_DRIVER}{encoded}"


def path_of(uri: str) -> Path | None:
    """Return the database file of an address, whether it exists or not; None for other addresses.

    Examples
    --------
    >>> path_of("sqlite:////data/a%20b/mlflow.db")
    PosixPath('/data/a b/mlflow.db')
    """
    for prefix in (SQLITE, SQLITE_DRIVER):
        if uri.startswith(prefix) and "?" not in uri:  # options of SQLAlchemy follow it
            return Path(unquote(uri.removeprefix(prefix)))  # as SQLAlchemy decodes it
    return None


def database_of(uri: str) -> Path | None:
    """Return the database file of a tracking address, or None if it is another kind of address.

    Raises
    ------
    ModelError
        If the address is a database file that does not exist.
    """
    if is_missing(uri):
        raise ModelError("no such registry", uri, _train_in(path_of(uri)))
    return path_of(uri)


def _train_in(database: Path | None) -> str:
    """Return how the first model is trained: in a clone of this project by its demo, too."""
    if database is None:
        return TRAIN
    makefile = database.parent / "Makefile"
    try:
        has_demo = (database.parent / "dvc.yaml").is_file() and any(
            line.startswith("demo:") for line in makefile.read_text(encoding="utf-8").splitlines()
        )
    except (OSError, UnicodeDecodeError):  # no project, or none that this user can read
        has_demo = False
    return TRAIN_BY_DEMO if has_demo else TRAIN


def is_missing(uri: str) -> bool:
    """Whether a tracking address is that of a database file which does not exist."""
    path = path_of(uri)
    return path is not None and not os.path.isfile(path)  # noqa: PTH113  # never raises


def check(database: Path) -> None:
    """Check that a database can be read and has the tables of a registry.

    Raises
    ------
    ModelError
        If it cannot, is damaged, or is of another release of MLflow.
    """
    with opened(database):
        pass


def versions(database: Path, name: str) -> list[StoredVersion]:
    """Return the versions of a registered model, newest first.

    Raises
    ------
    ModelError
        As `check`, or if several workspaces have such a model.
    """
    with opened(database) as connection:
        rows, aliases, tags = (
            connection.execute(query, (name,)).fetchall() for query in (_VERSIONS, _ALIASES, _TAGS)
        )
    if len({number for number, *_ in rows}) < len(rows):
        raise ModelError(f"has several models {name!r}", database, "see MLFLOW_TRACKING_URI")
    stored = []
    for number, storage, source, run_id in rows:
        location = str(storage or source or "")
        stored.append(
            StoredVersion(
                str(number),
                location,
                _local_folder(location, database),
                str(run_id or ""),
                frozenset(alias for version, alias in aliases if version == number),
                {key: str(value) for version, key, value in tags if version == number},
            )
        )
    return stored


def version_with_alias(database: Path, name: str, alias: str) -> StoredVersion | None:
    """Return the version that an alias of a model points to, or None; errors as `versions`."""
    return next((v for v in versions(database, name) if alias in v.aliases), None)


def _local_folder(location: str, database: Path) -> Path | None:
    """Return the folder of a model's files, or None if it is not on this machine.

    MLflow records an absolute path. A project that was moved, copied or mounted elsewhere has its
    files beside the database, which come first: the recorded path may be that of the original.
    """
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    recorded = unquote(parts.path) if parts.scheme else location
    # The last of that name: a folder above the project may have it too.
    _, artifacts, inside = recorded.rpartition(f"/{ARTIFACTS}/")
    beside = database.parent / ARTIFACTS / inside
    # Not Path.is_dir, which raises where a folder above may not be entered.
    folders = [beside, Path(recorded)] if artifacts and inside else [Path(recorded)]
    return next((folder for folder in folders if os.path.isdir(folder)), None)  # noqa: PTH112


@contextlib.contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a database read-only, and check its tables; errors as `check`.

    SQLite must write to read a database in WAL mode, or one whose writer was killed. Where it may
    not, a copy in a temporary folder is read.
    """
    with contextlib.ExitStack() as stack:
        try:
            try:
                connection = _connect(database, stack)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _CANNOT_WRITE:
                    raise
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="voxcast-db-"))
                connection = _connect(_copy(database, Path(folder)), stack, "rw")
            yield connection
        except sqlite3.OperationalError as error:
            raise _refusal(error, database) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise ModelError(f"the registry is damaged: {error}", database, REPAIR) from None
        except OSError as error:
            fix = "you need the right to read it, and room in the temporary folder"
            raise ModelError(f"the registry cannot be read: {error}", database, fix) from None


def _connect(database: Path, stack: contextlib.ExitStack, mode: str = "ro") -> sqlite3.Connection:
    address = f"file:{quote(str(database.resolve()))}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    stack.enter_context(contextlib.closing(connection))
    connection.execute(_TABLES).fetchall()
    return connection


def _copy(database: Path, folder: Path) -> Path:
    """Copy a database with what a writer left beside it; nothing was written meanwhile."""
    files = [database, *(Path(f"{database}{suffix}") for suffix in _COMPANIONS)]
    for _ in range(_COPIES):
        before = [_state(path) for path in files]
        for path in files:
            target = folder / path.name
            target.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path, target)
        if [_state(path) for path in files] == before:
            return folder / database.name
    raise BlockingIOError(f"others write to it all the time; {_COPIES} copies differ")


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _refusal(error: sqlite3.OperationalError, database: Path) -> ModelError:
    if "no such" in str(error):  # table or column
        problem = f"is empty, or of another release of MLflow ({error})"
        return ModelError(problem, database, f"see `mlflow db upgrade`; or {REPAIR}")
    fix = "another process may be writing to it: try again"
    return ModelError(f"the registry cannot be read: {error}", database, fix)
