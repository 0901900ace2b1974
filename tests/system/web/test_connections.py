"""Connections against a server process: refusals reach their clients, and few bodies are large."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_server import free_port, received, running_server
from voxcast.web.guards import MAX_BODY_BYTES, PLACES

TOKEN = "0123456789abcdef-secret"  # noqa: S105
PATIENCE_S = 20.0
REFUSED = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"


@pytest.fixture(scope="module")
def port(champion_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a service with a token, to which other machines can connect."""
    (tokens := tmp_path_factory.mktemp("token") / "token").write_text(TOKEN)
    number, module = free_port(), [sys.executable, "-m", "voxcast.cli"]
    words = ["serve", "--host", "0.0.0.0", "--port", str(number)]  # noqa: S104
    options = ["--token-file", str(tokens), "--project", str(champion_project)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    with running_server([*module, *words, *options], number, champion_project, variables):
        yield number


def _connected(port: int, patience_s: float = PATIENCE_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=patience_s)


def test_a_refusal_reaches_a_client_that_sends_all_before_it_reads(port: int) -> None:
    with _connected(port) as connection:
        connection.sendall(REFUSED)
        connection.sendall(b" " * 8_000_000)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 401")


def test_large_questions_have_few_places(port: int) -> None:
    """Else each of 512 requests could hold 16 MiB."""
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
        b"Authorization: Bearer %s\r\nConnection: close\r\n\r\n"
    )
    large = head % (MAX_BODY_BYTES, TOKEN.encode()) + b" " * (MAX_BODY_BYTES - 1)
    small = head % (2, TOKEN.encode()) + b"{}"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(_connected(port)) for _ in range(PLACES)]
        for connection in slow:
            connection.sendall(large)
        refused = stack.enter_context(_connected(port))
        refused.sendall(large + b" ")
        assert (answer := received(refused)).startswith(b"HTTP/1.1 429")
        assert b"retry-after: " in answer
        other = stack.enter_context(_connected(port))
        other.sendall(small)
        assert received(other).startswith(b"HTTP/1.1 422")
        for connection in slow:
            connection.sendall(b" ")
            assert received(connection).startswith(b"HTTP/1.1 422")
