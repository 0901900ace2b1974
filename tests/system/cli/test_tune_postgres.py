"""``voxcast tune --storage`` on a real PostgreSQL: processes share it, and no password leaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from planted_search import ROOT, TRIALS, search_project, with_clusters
from private_postgres import PACKAGE, PASSWORD, USER, Postgres, missing_programs, private_postgres
from voxcast.studies.shared_search import SharedSearch

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    if missing := missing_programs():
        missing_text = ", ".join(missing)
        pytest.skip(f"PostgreSQL is not installed ({missing_text}): apt-get install {PACKAGE}")
    with private_postgres() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(server.password_file))
        patch.delenv("PGPASSWORD", raising=False)
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return search_project(tmp_path)


def started(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "voxcast.cli", "tune", *arguments, "--json"], cwd=project,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


def tune(project: Path, *arguments: str, code: int = 0) -> tuple[dict, str]:
    process = started(project, *arguments)
    output, log = process.communicate(timeout=300)
    assert process.returncode == code, log
    return json.loads(output) if output else {}, log


def test_processes_choose_as_those_that_share_a_file(database: Postgres, project: Path) -> None:
    storage = ("--storage", database.url)
    both = [started(project, *storage, "--workers", "2") for _ in range(2)]
    logs = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    content, _ = tune(project, *storage, "--workers", "1")
    rows = content["searches"]
    assert {name: row["completed"] for name, row in rows.items()} == {
        "segment/extra_trees": TRIALS, "segment/boosted": TRIALS,
    }  # fmt: skip
    assert all(row["lost"] == 0 for row in rows.values())
    assert not (project / "data" / "tuning" / "study.log").exists()
    in_a_file, _ = tune(project, "--folder", "file", "--workers", "1")
    assert in_a_file["searches"] == rows
    written = [path for path in project.rglob("*") if path.is_file()]
    assert not [path for path in written if PASSWORD.encode() in path.read_bytes()]
    assert not [log for log in logs if PASSWORD in log]


def test_searches_of_two_folders_do_not_mix(database: Postgres, project: Path) -> None:
    with_clusters(project)
    look = ("--storage", database.url, "--cluster", "private", "--folder")
    tune(project, "--storage", database.url, "--folder", "here", "--workers", "1")
    ended, _ = tune(project, *look, "here")
    assert ended["finished"]
    other, _ = tune(project, *look, "there", code=1)
    assert [row["completed"] for row in other["searches"].values()] == [0, 0]
    assert f"--storage '{database.url}'" in other["workers"].replace("'\"'\"'", "'")


def test_connections_that_the_server_closed_are_made_again(
    database: Postgres, tmp_path: Path
) -> None:
    search = SharedSearch(tmp_path, 2, 0, database.url, "restarted")
    search.add("tool/extra_trees", "extra_trees")
    database.stop()
    database.start()
    assert search.result("tool/extra_trees", "extra_trees").trials == 2
    search.add("tool/boosted", "boosted")


def test_a_database_that_is_away_is_one_line(database: Postgres, project: Path) -> None:
    database.stop()
    try:
        _, log = tune(project, "--storage", database.url, code=2)
    finally:
        database.start()
    (line,) = log.splitlines()
    assert line.startswith(f"voxcast: {database.url}: the database failed (connection")
    assert line.endswith("; trials on record are kept, and the same command continues")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"postgresql+psycopg://{USER}:secret@host/db", "holds a password"),
        (f"postgresql+psycopg://{USER}@host/db?password=secret", "holds a password"),
        ("secret words", "is no address of a database"),
        ("postgresql+psycopg://host:secret/db", "is no address of a database"),
        ("novendor://secret@host/db", "is no address of a database"),
    ],
)
def test_an_address_that_is_refused_is_not_repeated(project: Path, url: str, problem: str) -> None:
    _, log = tune(project, "--storage", url, code=2)
    (line,) = log.splitlines()
    assert line.startswith("voxcast: --storage: ")
    assert problem in line
    assert "secret" not in line
