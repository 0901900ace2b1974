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

import psutil
import pytest

from champions import register_champion
from model_server import free_port, received, running_server
from voxcast.measure.processes import alive, listed
from voxcast.web.guards import MAX_BODY_BYTES

PATIENCE_S = 20.0


def _environment() -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    return {**variables, "MLFLOW_DISABLE_TELEMETRY": "true"}


@contextlib.contextmanager
def _serving(project: Path, port: int, *options: str) -> Iterator[int]:
    """Serve the project's champion; give the process id of the command."""
    words = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port), *options]
    with running_server([*words, "--project", str(project)], port, project, _environment()):
        pids = {entry.pid for entry in psutil.net_connections("tcp")
                if entry.status == psutil.CONN_LISTEN and entry.laddr.port == port}  # fmt: skip
        holder = psutil.Process(next(pid for pid in pids if pid is not None))
        while "multiprocessing" in " ".join(holder.cmdline()) and (parent := holder.parent()):
            holder = parent
        yield holder.pid


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_command_ends_every_process(
    champion_project: Path, number: signal.Signals
) -> None:
    port = free_port()
    with _serving(champion_project, port) as pid:
        family = _family(pid)
        os.kill(pid, number)
        assert not _wait_until_gone(family)
        assert _becomes_free(port)


def test_a_taken_port_names_the_server_and_its_version(champion_project: Path) -> None:
    port = free_port()
    with _serving(champion_project, port) as pid:
        second = subprocess.run(
            [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)],
            cwd=champion_project, env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert second.returncode == 2
    line = second.stderr.strip()
    assert f"process {pid} serves version 1 here since 20" in line
    assert f"`kill {pid}`" in line
    assert len(line.splitlines()) == 1


def _received(port: int, request: bytes, patience_s: float = PATIENCE_S) -> bytes:
    """Return all that comes back on one connection until the server closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        connection.sendall(request)
        return received(connection)


def test_a_body_that_is_too_large_is_refused_although_all_of_it_is_sent(
    champion_project: Path,
) -> None:
    port = free_port()
    with _serving(champion_project, port) as pid:
        before = _resident_bytes(pid)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", b" " * (MAX_BODY_BYTES + 1),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        assert refused.value.code == 413
        assert "fewer rows" in json.load(refused.value)["message"]
        assert _resident_bytes(pid) - before < 2**24  # nothing of it was stored


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(s.split()[1] for s in status.splitlines() if s.startswith("VmRSS")))


def test_a_token_guards_the_service_and_is_never_logged(
    champion_project: Path, tmp_path: Path
) -> None:
    token, port = "0123456789abcdef-secret", free_port()
    (tmp_path / "token").write_text(f"{token}\n")
    with _serving(champion_project, port, "--token-file", str(tmp_path / "token")) as pid:
        url = f"http://127.0.0.1:{port}/models"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, timeout=PATIENCE_S)
        assert refused.value.code == 401
        authorised = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(authorised, timeout=PATIENCE_S) as reply:
            assert json.load(reply)["version"] == "1"
        assert token not in Path(f"/proc/{pid}/cmdline").read_text()
    assert token not in (champion_project / "server.log").read_text()


@pytest.mark.parametrize(
    ("options", "content", "problem"),
    [
        (
            ["--host", "0.0.0.0"],  # noqa: S104
            None,
            "0.0.0.0: others can reach this address, so a token",
        ),
        (["--token-file", "token"], "", "token: a token has at least 16 letters"),
        (["--token-file", "token"], "short", "token: a token has at least 16 letters"),
        (["--token-file", "token"], "two words are not a token", "token: must be one word"),
        (["--token-file", "token"], "é" * 20, "token: must be of ASCII"),
        (["--token-file", "no-such-file"], None, "no-such-file: cannot be read"),
        (["--root", "no-such-folder"], None, "no-such-folder: is no folder"),
        (["--poll", "0s"], None, "--poll: must be at least 0.1s"),
        (["--max-upload", "much"], None, "--max-upload"),
    ],
)
def test_unsafe_options_are_refused(
    champion_project: Path, tmp_path: Path, options: list[str], content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    words = [sys.executable, "-m", "voxcast.cli", "serve", "--project", str(champion_project)]
    result = subprocess.run(
        [*words, *options], cwd=tmp_path, env=_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert problem in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


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


def test_a_model_that_cannot_be_read_ends_the_service_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    register_champion(tmp_path, 20)
    (tmp_path / "params.yaml").touch()
    for path in (tmp_path / "models").rglob("bundle.json"):
        path.write_text("{")
    words = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(free_port())]
    result = subprocess.run(
        words, cwd=tmp_path, env=_environment(), capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 2
    assert "bundle.json: is not the file that was registered" in result.stderr
    assert "Traceback" not in result.stderr
