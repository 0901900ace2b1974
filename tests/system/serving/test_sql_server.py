"""A registry in a database server: its password, its driver, and a server that is not there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from model_server import free_port
from voxcast.cli import main
from voxcast.errors import ModelError
from voxcast.tracking import address
from voxcast.tracking.address import check, without_password


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
