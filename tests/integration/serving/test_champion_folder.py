"""The champion's files: found in a registry that is not written to, or refused in one line."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.serving.bundle import INDEX
from voxcast.serving.local_model import LocalModel
from voxcast.serving.registry import tracking_server
from voxcast.serving.registry.lookup import check_registry
from voxcast.serving.registry.model_files import champion_folder


@pytest.fixture
def copied(project: Path, tmp_path: Path) -> Path:
    """Return a copy of the project in another place."""
    shutil.copytree(project, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def address(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def test_the_folder_is_that_of_mlflow(project: Path) -> None:
    import mlflow

    folder = champion_folder(address(project))
    assert (folder / "MLmodel").is_file()
    assert folder.is_relative_to(project / "mlruns")
    client = mlflow.MlflowClient(address(project), address(project))
    assert folder.as_uri() == client.get_model_version_download_uri("voxcast", "1")


def test_a_copy_answers_from_its_own_files(copied: Path) -> None:
    assert champion_folder(address(copied)).is_relative_to(copied)


def test_a_project_that_was_moved_keeps_its_champion(
    project: Path, copied: Path, tmp_path: Path
) -> None:
    expected = LocalModel.load(champion_folder(address(project))).predict([HEADER_ROW], 0.95)
    aside = tmp_path / "aside"
    (project / "mlruns").rename(aside)
    try:
        folder = champion_folder(address(copied))
        assert folder.is_relative_to(copied)
        assert LocalModel.load(folder).predict([HEADER_ROW], 0.95) == expected
        with pytest.raises(ModelError, match="the files of version 1 are gone"):
            champion_folder(address(project))
    finally:
        aside.rename(project / "mlruns")


def test_a_registry_without_a_champion(copied: Path) -> None:
    with closing(sqlite3.connect(copied / "mlflow.db")) as connection, connection:
        connection.execute("DELETE FROM registered_model_aliases")
    with pytest.raises(ModelError, match="the registry has no champion"):
        champion_folder(address(copied))


def garbled(content: bytes) -> bytes:
    damaged = np.frombuffer(content, dtype=np.uint8).copy()
    generator = np.random.default_rng(0)
    damaged[generator.integers(100, len(damaged), 3000)] = generator.integers(0, 256, 3000)
    return damaged.tobytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"not a database" * 50, "is damaged: file is not a database"),
        (lambda content: content[:5000], "is damaged: database disk image is malformed"),
        (lambda content: content[: len(content) // 2], "is damaged"),
        (garbled, "is damaged"),
        (lambda content: b"", "is empty, or of another release of MLflow"),
    ],
)
def test_a_damaged_database_is_refused(
    copied: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    database = copied / "mlflow.db"
    database.write_bytes(damage(database.read_bytes()))
    before = database.read_bytes()
    for read in (champion_folder, check_registry):
        with pytest.raises(ModelError, match=message) as caught:
            read(address(copied))
        assert str(database) in str(caught.value)
    assert database.read_bytes() == before


def test_a_database_of_an_older_schema_is_refused(copied: Path) -> None:
    with closing(sqlite3.connect(copied / "mlflow.db")) as connection, connection:
        connection.execute("DROP TABLE registered_model_aliases")
    with pytest.raises(ModelError, match="another release of MLflow"):
        check_registry(address(copied))


def test_changed_files_of_the_champion_are_refused(copied: Path, project: Path) -> None:
    folder = champion_folder(address(project))
    copy = copied / folder.relative_to(project)
    model = LocalModel.load(copy)
    encoder = next(model.bundle.folder.rglob("encoder.json"))
    encoder.write_text(encoder.read_text().replace("cpu", "gpu"))
    with pytest.raises(ModelError, match="is not the model that was registered"):
        model.predict([HEADER_ROW], 0.95)
    index = model.bundle.folder / INDEX
    index.write_bytes(index.read_bytes()[:-20])
    with pytest.raises(ModelError, match="is damaged"):
        LocalModel.load(copy)


def test_a_server_that_does_not_answer_is_named(
    silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking_server, "ANSWER_S", 1)
    for read in (champion_folder, check_registry):
        with pytest.raises(ModelError, match="does not answer within 1 s") as caught:
            read(silent_server)
        assert silent_server in str(caught.value)


def test_mlflow_is_told_to_give_up_soon_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import os

    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    tracking_server.limit_waiting()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
