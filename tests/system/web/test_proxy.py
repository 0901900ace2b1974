"""The service behind a real nginx with the configuration of this project."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from model_server import free_port, received, running_server
from small_head import write_head
from voxcast.cli import main
from voxcast.serving.client import Client

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
PROJECT = Path(__file__).parents[3]
TOKEN = "0123456789abcdef-secret"  # noqa: S105
PATIENCE_S = 20.0
QUICK = {"client_header_timeout 15s": "client_header_timeout 1s",
         "client_body_timeout 15s": "client_body_timeout 1s",
         "client_max_body_size 513m": "client_max_body_size 1m"}  # fmt: skip


@contextlib.contextmanager
def proxy(service: str, folder: Path) -> Iterator[int]:
    """Run nginx before a service, with shorter times; give its port."""
    port, text = free_port(), (PROJECT / "nginx.conf").read_text()
    replaced = {"listen 8080": f"listen 127.0.0.1:{port}", "http://voxcast:5001": service, **QUICK}
    for before, after in replaced.items():
        assert before in text
        text = text.replace(before, after)
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        text = text.replace("http {", f"http {{\n    {name}_temp_path {folder}/{name};", 1)
    (folder / "nginx.conf").write_text(text)
    options = f"pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off;"
    process = subprocess.Popen(
        [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", options]
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def port(champion_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of nginx before a service with a token."""
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "token").write_text(TOKEN)
    inside = free_port()
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(inside)]
    options = ["--token-file", str(folder / "token"), "--project", str(champion_project)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    with (
        running_server([*command, *options], inside, champion_project, variables) as service,
        proxy(service, folder) as number,
    ):
        yield number


def test_questions_and_refusals_pass(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/models").status_code == 401
    monkeypatch.setenv("VOXCAST_TOKEN", TOKEN)
    head = tmp_path / "head.nii.gz"
    write_head(head, spacing_mm=2.5, edge=80)
    assert main(["predict", str(head), "--app", "segment", "--model", url]) == 0
    assert "head.nii.gz" in capsys.readouterr().out
    assert Client(url).version == "1"


def test_a_body_that_pauses_ends_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n{"
        )
        assert received(connection)[:12] in (b"", b"HTTP/1.1 408")  # closed, in time


def test_a_client_that_asks_too_often_is_refused(port: int) -> None:
    def ask(_: int) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping") as reply:
                return int(reply.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    with ThreadPoolExecutor(16) as threads:
        statuses = list(threads.map(ask, range(1500)))
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 200
