"""Servers in real processes: signals end all of them; a port that is taken names its holder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from champions import register_champion
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
        yield listeners(port)[0].pid


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
    champion_project: Path, number: signal.Signals, workers: str
) -> None:
    port = free_port()
    with _serving(champion_project, port, "--workers", workers) as pid:
        family = _family(pid)
        assert len(family) >= (1 if workers == "1" else 3)
        os.kill(pid, number)
        assert not _wait_until_gone(family)
        assert _becomes_free(port)


def test_a_taken_port_names_the_server_and_its_version(champion_project: Path) -> None:
    port = free_port()
    with _serving(champion_project, port) as pid:
        second = subprocess.run(
            [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)],
            cwd=project, env=_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert second.returncode == 2
    line = second.stderr.strip()
    assert f"process {pid} serves version 1 here since 20" in line
    assert f"`kill {pid}`" in line
    assert len(line.splitlines()) == 1


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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_that_cannot_be_read_ends_all_processes_with_a_line(
    tmp_path: Path, workers: str
) -> None:
    register_champion(tmp_path, 20)
    (tmp_path / "params.yaml").touch()
    for path in (tmp_path / "mlruns").rglob("bundle.json"):
        path.write_text("{")
    words = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(free_port())]
    result = subprocess.run(
        [*words, "--workers", workers], cwd=tmp_path, env=_environment(), capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 2
    assert "bundle.json: is damaged" in result.stderr
    assert "Traceback" not in result.stderr
