"""A registry in a database server or on MLflow's own server: fetched, followed, or not there."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from champions import HEADER_ROW, register_champion
from model_server import free_port, running_server
from voxcast.cli import main
from voxcast.errors import ModelError
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.tracking import address
from voxcast.tracking.address import check, without_password
from voxcast.tracking.registry import CHAMPION, MODEL_NAME, pull
from voxcast.web.model_switch import ModelSwitch
from voxcast.web.server import Settings

ROW = {**HEADER_ROW, "app": "segment"}
START_S = 300.0  # at most


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with two versions; it keeps their files."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    with running_server(command, port, folder, None, START_S, "/health") as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", url)
            patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")  # of a busy machine
            for subjects in (20, 24):
                register_champion(tmp_path_factory.mktemp("project"), subjects)
        assert len([*folder.rglob("bundle.json")]) == 2
        yield url


def median(service: PredictionService) -> float:
    (answer,) = service.predict([ROW])
    return float(answer["runtime_s_median"])


def test_each_version_is_fetched(server: str, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    assert pull(store, server, "1") == store.champion() == "1"
    assert pull(store, server) == store.champion() == "2"
    first, second = (median(PredictionService(store.open(number))) for number in "12")
    assert first != second


def test_the_service_follows_the_champion_of_the_server(server: str, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    switch, client = (
        ModelSwitch(Settings(store, registry=server)),
        mlflow.MlflowClient(server, server),
    )
    for number in ("1", "2"):
        client.set_registered_model_alias(MODEL_NAME, CHAMPION, number)
        switch.look()
        assert switch.champion is not None
        assert switch.champion.version == store.champion() == number
        expected = median(PredictionService(store.open(number)))
        assert median(switch.champion) == expected


@pytest.mark.parametrize(
    ("uri", "displayed"),
    [
        ("postgresql+psycopg://a:b@h:1/d?sslmode=require", "postgresql+psycopg://a@h:1/d?sslmode=require"),
        ("postgresql://a:b%40c@h/d", "postgresql://a@h/d"),
        ("postgresql://a:b@c@h/d", "postgresql://a@h/d"),
        ("https://a:b@h/mlflow", "https://a@h/mlflow"),
        ("postgresql:///d?user=a&password=b&host=/run", "postgresql:///d?user=a&password=***&host=/run"),
        ("postgresql:///d?application_name=a@b:c", "postgresql:///d?application_name=a@b:c"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:////a:b@c/mlflow.db", "sqlite:////a:b@c/mlflow.db"),
    ],
)  # fmt: skip
def test_a_password_is_not_displayed(uri: str, displayed: str) -> None:
    assert without_password(uri) == displayed


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("postgresql+pg8000://a:secret@127.0.0.1/d",
         "postgresql+pg8000://a@127.0.0.1/d: the driver pg8000 of this database is not installed; "
         "pip install 'pg8000'"),
        ("postgresql+unheard://a:secret@127.0.0.1/d", "MLFLOW_TRACKING_URI: is no address of a"),
        ("postgresql://a:secret@127.0.0.1:port/d", "MLFLOW_TRACKING_URI: is no address of a"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line_without_the_password(
    uri: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (tmp_path / "params.yaml").touch()
    assert main(["models", "pull", "--project", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"voxcast: {message}")
    assert "secret" not in error
    assert error.count("\n") == 1


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    pytest.importorskip("psycopg")
    uri = f"postgresql+psycopg://a:secret@127.0.0.1:{free_port()}/d"
    with pytest.raises(ModelError, match=r"does not answer: .*[Cc]onnection refused") as caught:
        check(uri)
    assert "secret" not in str(caught.value)
    assert "PGPASSWORD" in str(caught.value)


def test_a_server_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "WAIT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelError, match="does not answer within 1 s") as caught:
            check(uri)
    assert uri in str(caught.value)
