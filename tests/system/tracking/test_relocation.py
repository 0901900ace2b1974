"""Projects that were moved or copied, with their real registry: MLflow finds what is here."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from champions import HEADER_ROW, champion_version, register_champion, registered_bundle
from voxcast.cli import main
from voxcast.cli.machine_checks import Check
from voxcast.cli.models import main as models
from voxcast.cli.project_checks import project_checks
from voxcast.errors import ModelError
from voxcast.serving.registry.model_files import champion_folder
from voxcast.tracking import registry, runs
from voxcast.tracking.registered_versions import versions
from voxcast.tracking.relocation import BACKUP, relocate
from voxcast.tracking.runs import tracking_uri

LOAD = """
import sys, mlflow
model = mlflow.pyfunc.load_model("models:/voxcast@champion")
(answer,) = model.predict([eval(sys.argv[1])])["cpu_s_median"]
print(answer)
"""
RELOCATE = """
import sys
from pathlib import Path
from voxcast.tracking.relocation import relocate
from voxcast.tracking.runs import tracking_uri
project = Path(sys.argv[1])
sys.stdin.readline()
print(relocate(project, tracking_uri(project)))
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two versions, at its first place."""
    folder = tmp_path_factory.mktemp("at") / "first"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        register_champion(folder, 12)
        register_champion(folder, 14)
        (folder / "params.yaml").touch()
        registry.write_marker(folder, "2", "1")
    return folder


@pytest.fixture
def first(template: Path, tmp_path: Path) -> Path:
    """Return a project which knows no other place: a copy whose paths were changed."""
    folder = tmp_path / "first"
    shutil.copytree(template, folder)
    assert relocate(folder, tracking_uri(folder))
    (folder / BACKUP).unlink()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def registry_check(project: Path) -> Check:
    (check,) = (check for check in project_checks(project) if check.name == "registry")
    return check


def stored_paths(project: Path) -> set[str]:
    """Return every text in the database that looks like a path or an address of one."""
    with closing(sqlite3.connect(project / "mlflow.db")) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master "
                                                       "WHERE type = 'table'")]  # fmt: skip
        cells = (
            cell
            for table in tables
            for row in connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608
            for cell in row
        )
        return {cell for cell in cells if isinstance(cell, str) and "/mlruns" in cell}


def predicted_by_mlflow(project: Path) -> float:
    """Load the champion as `mlflow models serve` does, with MLflow alone, in the project."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_TRACKING")}
    answer = subprocess.run(
        [sys.executable, "-c", LOAD, repr(HEADER_ROW)], cwd=project, env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(answer.stdout)


def learn_again(project: Path) -> None:
    """Register a third version, by all that MLflow writes when something is learned."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    register_champion(project, 13)


def test_a_project_that_was_moved_is_used_and_learned_in(first: Path, tmp_path: Path) -> None:
    expected = predicted_by_mlflow(first)
    before = (first / "mlflow.db").read_bytes()
    here = first.rename(tmp_path / "second")
    with closing(sqlite3.connect(here / "mlflow.db")) as connection:
        changes = connection.execute("SELECT count(*) FROM runs").fetchone()
    assert changes == (2,)
    assert relocate(here, tracking_uri(here))
    assert not relocate(here, tracking_uri(here))
    # A page of the file may have changed by the backup, a row did not.
    with closing(sqlite3.connect(here / BACKUP)) as backup:
        (restored := here / "restored.db").write_bytes(before)
        with closing(sqlite3.connect(restored)) as former:
            assert list(backup.iterdump()) == list(former.iterdump())
    assert all(path.startswith(f"{here.as_uri()}/mlruns") for path in stored_paths(here))
    assert predicted_by_mlflow(here) == expected
    learn_again(here)
    assert not first.exists()
    assert [version.number for version in versions(tracking_uri(here))] == ["3", "2", "1"]
    assert champion_folder(tracking_uri(here)).is_relative_to(here)
    assert registered_bundle(here, "3").is_intact("segment")


def test_a_copy_is_learned_in_and_the_original_stays_as_it_is(first: Path, tmp_path: Path) -> None:
    before = files(first)
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    learn_again(copy)
    assert files(first) == before
    assert champion_version(copy).number == "3"
    os.environ.pop("MLFLOW_TRACKING_URI")
    assert champion_version(first).number == "2"
    assert not any(str(first) in path for path in stored_paths(copy) if "/first/" in path)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("a/b", "a/bc"), ("a/bc", "a/b"), ("plain", "with blank"), ("with blank", "50%"),
        ("a#b", "a?b"), ("mlruns", "other/mlruns"), ("mlruns/p", "p"), ("ä", "a&b@c:d"),
    ],
)  # fmt: skip
def test_any_two_names_of_folders(template: Path, tmp_path: Path, start: str, end: str) -> None:
    original, here = tmp_path / start, tmp_path / end
    for source, target in ((template, original), (original, here)):
        shutil.copytree(source, target)
        before = files(source)
        assert relocate(target, tracking_uri(target))
        assert files(source) == before
        assert champion_folder(tracking_uri(target)).is_relative_to(target)
        paths = stored_paths(target)
        assert any(path.startswith(f"{target.as_uri()}/mlruns/") for path in paths)
        assert not any(path.startswith(f"{source.as_uri()}/mlruns/") for path in paths)
    shutil.rmtree(original)
    predicted_by_mlflow(here)


def test_the_verb_mends_a_project_and_lists_one_that_it_cannot_mend(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    assert registry_check(copy).meaning.startswith(
        f"this project was at {first}: `voxcast models`"
    )
    shutil.rmtree(copy / "mlruns/models")
    before = files(copy)
    assert "2 folders of artifacts are only there" in registry_check(copy).meaning
    assert models(["--project", str(copy)]) == 0
    assert "version   2 champion" in capsys.readouterr().out
    (message,) = caplog.messages
    assert f"{copy}/mlruns: this project was at {first}, and 2 folders of artifacts" in message
    for write in (lambda: runs.connect(copy), lambda: registry.use(copy)):
        with pytest.raises(ModelError, match=r"are only there; copy .*first/mlruns here too"):
            write()
    monkeypatch.chdir(copy)
    assert main(["learn", "--yes"]) == 2  # before anything is measured
    assert "are only there" in capsys.readouterr().err
    assert files(copy) == before
    caplog.clear()

    shutil.copytree(first / "mlruns/models", copy / "mlruns/models")
    with caplog.at_level("INFO", logger="voxcast"):
        assert models(["--refresh", "--project", str(copy)]) == 0
    (message,) = caplog.messages
    assert message.startswith(f"this project was at {first}: its registry now has the paths of")
    assert registry_check(copy).status == "works"
    assert (copy / "mlruns/registered.json").is_file()  # so no stage of the graph is run again
    assert models(["rollback", "--project", str(copy)]) == 0
    assert models(["rollback", "2", "--app", "segment", "--project", str(copy)]) == 0
    assert champion_version(copy).number == "3"


def test_parts_of_the_models_that_were_not_copied_are_named(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    folder = champion_folder(tracking_uri(copy))
    assert folder.is_relative_to(copy)
    shutil.rmtree(folder)
    with pytest.raises(ModelError, match="and 1 folders of artifacts are only there"):
        relocate(copy, tracking_uri(copy))
    shutil.rmtree(first)  # then the project is here, and its champion is lost
    assert relocate(copy, tracking_uri(copy))
    with pytest.raises(ModelError, match="the files of version 2 are gone"):
        champion_folder(tracking_uri(copy))


def test_artifacts_that_were_put_elsewhere_stay_there(first: Path, tmp_path: Path) -> None:
    large_disk = tmp_path / "disk"
    large_disk.mkdir()
    (first / "mlruns/models").rename(large_disk / "models")
    shutil.rmtree(first / "mlruns")
    large_disk.joinpath("mlruns").mkdir()
    (large_disk / "models").rename(large_disk / "mlruns/models")
    with closing(sqlite3.connect(first / "mlflow.db")) as connection, connection:
        for table, column in (("logged_models", "artifact_location"),
                              ("model_versions", "storage_location"),
                              ("experiments", "artifact_location"),
                              ("runs", "artifact_uri")):  # fmt: skip
            connection.execute(
                f"UPDATE {table} SET {column} = replace({column}, ?, ?)",  # noqa: S608
                (first.as_uri(), large_disk.as_uri()),
            )
    before = (first / "mlflow.db").read_bytes()
    assert not relocate(first, tracking_uri(first))
    assert (first / "mlflow.db").read_bytes() == before
    predicted_by_mlflow(first)


def test_symlinks_are_no_move(first: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(first)
    assert not relocate(link, tracking_uri(link))
    # The folder of artifacts on another disk, as MLflow or a user may have written it.
    (first / "mlruns").rename(tmp_path / "mlruns")
    (first / "mlruns").symlink_to(tmp_path / "mlruns")
    with closing(sqlite3.connect(first / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 1",
                           ((tmp_path / "mlruns").as_uri(),))  # fmt: skip
    assert not relocate(first, tracking_uri(first))
    # The registry of another project, used from a second one.
    second = tmp_path / "second"
    second.mkdir()
    for name in ("mlflow.db", "mlruns"):
        (second / name).symlink_to(first / name)
    assert not relocate(second, tracking_uri(second))
    assert not (first / BACKUP).exists()


def test_a_registry_elsewhere_is_left_alone(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    before = files(copy)
    for uri in (tracking_uri(first), "http://127.0.0.1:1", "postgresql+psycopg://db/mlflow"):
        assert not relocate(copy, uri)
    assert files(copy) == before


def test_a_copy_that_may_not_be_written_to_is_read(first: Path, unprivileged_folder: Path) -> None:
    copy = unprivileged_folder / "copy"
    is_root = os.geteuid() != os.getuid()
    try:
        if is_root:
            os.seteuid(0)
        shutil.copytree(first, copy)
        for folder, _, names in os.walk(copy):
            Path(folder).chmod(0o555)
            for name in names:
                Path(folder, name).chmod(0o444)
    finally:
        if is_root:
            os.seteuid(65534)
    assert not relocate(copy, tracking_uri(copy))
    assert champion_folder(tracking_uri(copy)).is_relative_to(copy)
    if is_root:
        os.seteuid(0)
    assert not (copy / BACKUP).exists()


def test_what_a_writer_left_in_its_log_is_not_lost(first: Path, tmp_path: Path) -> None:
    script = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("UPDATE registered_models SET description = 'from the log'")
connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    database = first / "mlflow.db"
    subprocess.run([sys.executable, "-c", script, str(database)], check=False)
    assert Path(f"{database}-wal").stat().st_size > 0
    here = first.rename(tmp_path / "second")
    assert relocate(here, tracking_uri(here))
    for name in ("mlflow.db", BACKUP):
        with closing(sqlite3.connect(here / name)) as connection:
            rows = connection.execute("SELECT description FROM registered_models").fetchall()
            assert rows == [("from the log",)]


def test_two_commands_at_once_move_it_one_time(first: Path, tmp_path: Path) -> None:
    here = first.rename(tmp_path / "second")
    processes = [
        subprocess.Popen([sys.executable, "-c", RELOCATE, str(here)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = sorted(process.communicate()[0].strip() for process in processes)
    assert answers == ["False", "False", "True"]


def test_a_database_that_is_in_use_is_one_error(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = first.rename(tmp_path / "second")
    monkeypatch.setattr("voxcast.tracking.relocation._WAIT_S", 0.1)
    with closing(sqlite3.connect(here / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ModelError, match="cannot be changed: database is locked; close what"):
            relocate(here, tracking_uri(here))
    assert not (here / BACKUP).exists()


def test_a_registry_that_was_made_from_another_folder_is_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    register_champion(project, 12)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert not list(elsewhere.iterdir())
    assert not relocate(project, tracking_uri(project))
    assert champion_folder(tracking_uri(project)).is_relative_to(project)
