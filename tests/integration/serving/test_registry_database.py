"""MLflow's database read directly: by its address, and where SQLite may not write beside it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from voxcast.errors import ModelError
from voxcast.serving.registry import database as registry_database
from voxcast.serving.registry.database import address_of, path_of, versions

# Root may write to everything: without capabilities it is a user like others.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
READ = """
import sys
from pathlib import Path
from voxcast.serving.registry.database import versions
for version in versions(Path(sys.argv[1]), "voxcast"):
    print(version.number, *sorted(version.aliases), version.tags.get("mood"))
"""
# A writer that is killed within a transaction whose pages are partly in the database already.
KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA cache_size = 1")
connection.execute("PRAGMA cache_spill = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE model_version_tags SET value = 'spoilt' WHERE key = 'mood'")
connection.execute("CREATE TABLE filler (text)")
connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 500)
os.kill(os.getpid(), signal.SIGKILL)
"""
# A writer that is killed after a commit into the write-ahead log, which was not copied back.
KILLED_IN_WAL = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("UPDATE model_version_tags SET value = 'new' WHERE key = 'mood'")
connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def database(project: Path, tmp_path: Path) -> Path:
    """Return a copy of a registry in a folder of its own, with a tag ``mood``."""
    path = tmp_path / "folder" / "mlflow.db"
    path.parent.mkdir()
    shutil.copyfile(project / "mlflow.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO model_version_tags (name, version, key, value)"
            " VALUES ('voxcast', 1, 'mood', 'old')"
        )
    return path


@pytest.fixture
def reader(database: Path) -> Iterator[list[str]]:
    """Yield a command that reads ``database`` with the rights of a user."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes to read-only folders, and setpriv is not installed")
        prefix = WITHOUT_CAPABILITIES
    yield [*prefix, sys.executable, "-c", READ, str(database)]
    for path in (database.parent, *database.parent.iterdir()):
        path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o200)


def lock_folder(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)


def kill_a_writer(script: str, database: Path) -> None:
    process = subprocess.run([sys.executable, "-c", script, str(database)], check=False)
    assert process.returncode == -signal.SIGKILL


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_in_a_locked_folder(database: Path, reader: list[str]) -> str:
    """Read a registry where nothing may be written, and check that nothing was."""
    lock_folder(database.parent)
    before = contents(database.parent)
    answer = subprocess.run(reader, capture_output=True, text=True, check=True)
    assert contents(database.parent) == before
    return answer.stdout


def test_a_killed_writer_of_a_read_only_registry_is_rolled_back_in_a_copy(
    database: Path, reader: list[str]
) -> None:
    kill_a_writer(KILLED, database)
    assert Path(f"{database}-journal").stat().st_size > 0
    assert read_in_a_locked_folder(database, reader) == "1 champion old\n"


def test_a_write_ahead_log_of_a_read_only_registry_is_read(
    database: Path, reader: list[str]
) -> None:
    kill_a_writer(KILLED_IN_WAL, database)
    assert Path(f"{database}-wal").stat().st_size > 0
    Path(f"{database}-shm").unlink()  # as in a copy of the folder
    assert read_in_a_locked_folder(database, reader) == "1 champion new\n"


def test_a_read_only_registry_in_wal_mode_without_a_log_is_read(
    database: Path, reader: list[str]
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert not Path(f"{database}-wal").exists()
    assert read_in_a_locked_folder(database, reader) == "1 champion old\n"


def test_a_registry_without_the_right_to_read_is_one_error(
    database: Path, reader: list[str]
) -> None:
    database.chmod(0)
    result = subprocess.run(reader, capture_output=True, text=True, check=False)
    assert "ModelError" in result.stderr
    assert "Permission denied" in result.stderr
    assert "you need the right to read it" in result.stderr


def test_a_database_that_changes_while_it_is_copied_is_copied_again(
    database: Path, tmp_path: Path
) -> None:
    script = "import os, sys, time\nwhile True:\n    os.utime(sys.argv[1]); time.sleep(0.0001)\n"
    writer = subprocess.Popen([sys.executable, "-c", script, str(database)])
    try:
        first = database.stat().st_mtime_ns
        while database.stat().st_mtime_ns == first:
            pass
        database.write_bytes(database.read_bytes() + bytes(50_000_000))  # takes a while to copy
        with pytest.raises(BlockingIOError, match="others write to it all the time"):
            registry_database._copy(database, tmp_path)
    finally:
        writer.kill()
        writer.wait()
    assert registry_database._copy(database, tmp_path).stat().st_size > 50_000_000


@pytest.mark.parametrize("name", ["a b", "ä", "a?b", "a#b", "50%", "a&b", "a@b:c"])
def test_any_folder_has_an_address_that_mlflow_understands(tmp_path: Path, name: str) -> None:
    import mlflow

    folder = tmp_path / name
    folder.mkdir()
    uri = address_of(folder / "mlflow.db")
    assert path_of(uri) == folder / "mlflow.db"
    assert registry_database.is_missing(uri)
    mlflow.MlflowClient(uri, uri).create_registered_model("voxcast")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in folder.iterdir()] == ["mlflow.db"]
    assert versions(folder / "mlflow.db", "voxcast") == []


def test_a_folder_that_mlflow_takes_for_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="50%25: a path with % and two hexadecimal"):
        address_of(tmp_path / "50%25" / "mlflow.db")


def test_an_address_with_options_is_left_to_mlflow() -> None:
    assert path_of("sqlite:////a/mlflow.db?timeout=3") is None
    assert path_of("http://127.0.0.1:5000") is None


def test_a_registry_with_several_workspaces_is_refused(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("registered_models", "model_versions"):
            rows = connection.execute(f"SELECT * FROM {table} WHERE name = 'voxcast'")  # noqa: S608
            names = [column[0] for column in rows.description]
            if "workspace" not in names:
                pytest.skip("this release of MLflow has no workspaces")
            row = list(rows.fetchone())
            row[names.index("workspace")] = "other"
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608
    with pytest.raises(ModelError, match="has several models 'voxcast'"):
        versions(database, "voxcast")
