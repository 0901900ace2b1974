"""Servers in real processes: signals end all of them; a port that is taken names its holder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from voxcast.serving.http_server import MODEL_VARIABLE, command, served_version
from voxcast.serving.request_bodies import MAX_BYTES

from champions import HEADER_ROW
from model_server import free_port, running_server
from voxcast.profiling.listeners import listeners
from voxcast.profiling.processes import alive, listed

PATIENCE_S = 20.0


def _environment() -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    return {**variables, "MLFLOW_DISABLE_TELEMETRY": "true"}


@contextlib.contextmanager
def _serving(project: Path, port: int, *options: str) -> Iterator[int]:
    """Serve the project's champion; give the process id of the command."""
    words = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port), *options]
    with running_server([*words, "--project", str(project)], port, project, _environment()):
        yield next(h.pid for h in listeners(port) if served_version(h.command))


def _family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {}
    for other in listed():
        with contextlib.suppress(OSError, ValueError):
            stat = Path(f"/proc/{other}/stat").read_text()
            parents[other] = int(stat[stat.rindex(")") + 2 :].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _wait_until_gone(pids: set[int]) -> set[int]:
    deadline = time.monotonic() + PATIENCE_S
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _becomes_free(port: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S  # a process that ends closes its sockets last
    while time.monotonic() < deadline:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("number", "workers"),
    [(signal.SIGTERM, "1"), (signal.SIGHUP, "1"), (signal.SIGHUP, "2"), (signal.SIGKILL, "2")],
)
def test_a_signal_to_the_command_ends_every_process(
    project: Path, number: signal.Signals, workers: str
) -> None:
    port = free_port()
    with _serving(project, port, "--workers", workers) as pid:
        family = _family(pid)
        assert len(family) >= (1 if workers == "1" else 3)
        os.kill(pid, number)
        assert not _wait_until_gone(family)
        assert _becomes_free(port)


def test_a_taken_port_names_the_server_and_its_version(project: Path) -> None:
    port = free_port()
    with _serving(project, port) as pid:
        second = subprocess.run(
            [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)],
            cwd=project, env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert second.returncode == 2
    line = second.stderr.strip()
    assert f"process {pid} serves version 1 here since 20" in line
    assert f"`kill {pid}`" in line
    assert len(line.splitlines()) == 1


def _answer(port: int, body: bytes) -> tuple[int, dict[str, object]]:
    """Return status and content of the answer to a JSON request."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_wrong_request_is_a_client_error_without_a_traceback(project: Path) -> None:
    row = {**HEADER_ROW, "app": "segment"}
    records = json.dumps([row])
    refused = {
        "[" * 100_000: "nested too deeply",
        '{"dataframe_records": [{"shape_i": ' + "9" * 5_000 + "}]}": "not JSON that can be read",
        "{": "not JSON that can be read",
        f'{{"dataframe_records": {records}, "params": {{"quantil": 0.99}}}}': "quantil: unknown",
        f'{{"dataframe_records": {records}, "params": {{"quantile": null}}}}': "not None",
        json.dumps({"dataframe_records": [{**row, "shape_i": "NaN"}]}): "shape_i: is missing",
        json.dumps({"dataframe_records": []}): "shape_i",
    }
    port = free_port()
    with _serving(project, port):
        for body, problem in refused.items():
            status, content = _answer(port, body.encode())
            assert status == 400, body[:80]
            assert problem in str(content["message"])
            assert "stack_trace" not in content
        status, content = _answer(port, b" " * (MAX_BYTES + 1))
        assert status == 413
        assert "fewer rows" in str(content["message"])
        params = {"quantile": 0.9, "explain": True}
        body = json.dumps({"dataframe_records": [row, row], "params": params}).encode()
        status, content = _answer(port, body)
        assert status == 200
        predictions = content["predictions"]
        assert isinstance(predictions, list)
        assert len(predictions) == 2
        assert json.loads(predictions[0]["because"])
    assert "Traceback" not in (project / "server.log").read_text()


def test_any_other_holder_of_a_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = subprocess.run(
            [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(taken.getsockname()[1])],
            cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 2
    assert f"cannot listen: process {os.getpid()} (" in result.stderr
    assert "stop it" in result.stderr


def test_a_model_that_cannot_be_read_ends_all_workers_with_a_line(tmp_path: Path) -> None:
    words = command(str(tmp_path / "gone"), "3", "127.0.0.1", free_port(), 2)
    result = subprocess.run(
        words, env=_environment(), capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 2
    assert "gone: cannot be served: " in result.stderr
    assert "Traceback" not in result.stderr


def test_the_version_is_read_from_the_command_line() -> None:
    assert served_version(command("models:/voxcast/7", "7", "127.0.0.1", 5001, 1)) == "7"
    assert served_version(["uvicorn", "--version", "7"]) is None
    assert MODEL_VARIABLE not in os.environ
