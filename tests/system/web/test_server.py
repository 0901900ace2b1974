"""Servers in real processes: signals end all of them; a port that is taken names its holder."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from model_server import free_port, running_server
from voxcast.cli import main
from voxcast.measure.processes import alive, listed

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_ends_every_process(
    champion_project: Path, number: signal.Signals
) -> None:
    port = free_port()
    with _serving(champion_project, port) as pid:
        family = _family(pid)
        os.kill(pid, number)
        assert not _wait_until_gone(family)


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
    champion_project: Path, tmp_path: Path, options: list[str], content: str | None, problem: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if content is not None:
        (tmp_path / "token").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--project", str(champion_project), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
