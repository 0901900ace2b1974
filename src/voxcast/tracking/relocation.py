"""The registry of a project that was moved or copied: its stored paths are made those of here.

MLflow stores where the artifacts of each experiment, run, model and version are, as absolute
paths. In a project that was moved they lead nowhere; in a copy they lead into the original, which
a new version would be written into. Only the database of a project is changed, never a file.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from voxcast.errors import ModelError
from voxcast.files import atomic_path, locked
from voxcast.serving.registry.database import ARTIFACTS, DATABASE, opened, path_of

BACKUP = f"{DATABASE}.before-move"
_WAIT_S = 30.0  # for a writer
# Where MLflow 3 stores absolute paths; releases differ in what they have of these.
_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
_DEFAULT = "experiments", 0  # MLflow makes it with the database, for the folder it is called in
# The last folder of that name counts: what is inside is named by MLflow, what is above by users.
_PATH = re.compile(rf"(?P<root>/.*|)/{ARTIFACTS}(?P<inside>/.*)?", re.DOTALL)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredPath:
    """A path in the database that leads out of the project.

    Attributes
    ----------
    table, column, row : str, str, int
        Where it is stored.
    root : Path
        The project folder that it leads into.
    inside : str
        The rest of the path, below the folder of artifacts.
    """

    table: str
    column: str
    row: int
    root: Path
    inside: str

    def artifacts(self, project: Path) -> Path:
        """Return the same folder of artifacts in another project."""
        return project / ARTIFACTS / self.inside.lstrip("/")


def relocate(project: Path, uri: str) -> bool:
    """Make the paths in the database of a project those of the place where the project is.

    Nothing is changed in a registry that is not the project's own, in a project that may not be
    written to, and where the artifacts were put elsewhere on purpose, that is where they are
    neither in this project nor in another one.

    Parameters
    ----------
    project : Path
        Project folder.
    uri : str
        Tracking address.

    Returns
    -------
    bool
        Whether something was changed. The database as it was is `BACKUP`, beside it.

    Raises
    ------
    ModelError
        If some artifacts are at the old place only, or the database cannot be written.
    """
    here = project.resolve()
    database = here / DATABASE
    if not former_places(project, uri) or not _is_writable(database):
        return False
    try:
        with (
            locked(here),
            closing(sqlite3.connect(database, _WAIT_S, isolation_level=None)) as writer,
        ):
            writer.execute("BEGIN IMMEDIATE")  # others may read, and nobody else may write
            paths = _to_change(writer, here)  # another process may have been faster
            if not paths:
                return False
            _back_up(database)
            for path in paths:
                _update(writer, path, here)
            writer.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        problem = f"the paths of a moved project cannot be changed: {error}"
        fix = f"close what uses it, or look at {here} for room and rights"
        raise ModelError(problem, database, fix) from None
    roots = ", ".join(_roots(paths))
    logger.info(
        "this project was at %s: its registry now has the paths of %s; as it was: %s",
        roots, here, here / BACKUP,
    )  # fmt: skip
    return True


def former_places(project: Path, uri: str) -> list[str]:
    """Return where a project was, by the paths in its database that `relocate` changes.

    Raises
    ------
    ModelError
        As `relocate`, or if the database cannot be read.
    """
    here = project.resolve()
    database = here / DATABASE
    # Through a symlink, the database may be that of another project.
    if path_of(uri) != database or database.is_symlink() or not database.is_file():
        return []
    with opened(database) as reader:
        return _roots(_to_change(reader, here))


def _roots(paths: list[StoredPath]) -> list[str]:
    return sorted({str(path.root) for path in paths})


def _is_writable(database: Path) -> bool:
    return all(
        os.access(path, os.W_OK, effective_ids=True) for path in (database, database.parent)
    )


def _to_change(connection: sqlite3.Connection, here: Path) -> list[StoredPath]:
    """Return the paths that lead out of a project and should not.

    Raises
    ------
    ModelError
        If some artifacts are at the old place only.
    """
    by_root: dict[Path, list[StoredPath]] = {}
    for path in _stored_paths(connection):
        by_root.setdefault(path.root, []).append(path)
    changes: list[StoredPath] = []
    for root, paths in by_root.items():
        if not _is_same_place(root, here) and not _left_elsewhere(paths, root, here):
            changes += paths
    # The default experiment alone is no sign of a move.
    return [] if {(path.table, path.row) for path in changes} <= {_DEFAULT} else changes


def _stored_paths(connection: sqlite3.Connection) -> Iterator[StoredPath]:
    for table, column in _COLUMNS:
        names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if column not in names:
            continue
        query = f"SELECT rowid, {column} FROM {table} WHERE {column} LIKE '%/{ARTIFACTS}%'"  # noqa: S608
        for row, value in connection.execute(query):
            parts = urlsplit(value)
            if parts.scheme not in ("", "file"):
                continue
            match = _PATH.fullmatch(unquote(parts.path) if parts.scheme else value)
            if match is not None:
                root = Path(match["root"] or "/")
                yield StoredPath(table, column, row, root, match["inside"] or "")


def _is_same_place(root: Path, here: Path) -> bool:
    """Whether two projects are one, by their paths or by symlinks."""
    if root == here:
        return True
    try:
        return (root / ARTIFACTS).samefile(here / ARTIFACTS)
    except OSError:  # one of them is not there
        return False


def _left_elsewhere(paths: list[StoredPath], root: Path, here: Path) -> bool:
    """Whether the artifacts of another place were put there on purpose.

    Raises
    ------
    ModelError
        If some of them, but not all, are in this project.
    """
    present = {path for path in paths if _has_files(path.artifacts(here))}
    left = [path for path in paths if path not in present and _has_files(path.artifacts(root))]
    if not left:
        return False
    if not present and not os.path.isfile(root / DATABASE):  # noqa: PTH113  # never raises
        return True
    folders = {path.artifacts(root) for path in left}
    problem = f"this project was at {root}, and {len(folders)} folders of artifacts are only there"
    fix = f"copy {root / ARTIFACTS} here too; or move {DATABASE} away to begin a new registry"
    raise ModelError(problem, here / ARTIFACTS, fix)


def _has_files(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:  # it is not there, or on a machine that is not reached
        return False


def _back_up(database: Path) -> None:
    """Copy the database as it is, while nobody writes to it."""
    address = f"file:{quote(str(database))}?mode=ro"
    with (
        atomic_path(database.with_name(BACKUP)) as partial,
        closing(sqlite3.connect(address, uri=True)) as source,
        closing(sqlite3.connect(partial)) as target,
    ):
        source.backup(target)


def _update(connection: sqlite3.Connection, path: StoredPath, here: Path) -> None:
    # As an address, as a path with # or ? would be cut.
    value = path.artifacts(here).as_uri()
    query = f"UPDATE {path.table} SET {path.column} = ? WHERE rowid = ?"  # noqa: S608
    connection.execute(query, (value, path.row))
