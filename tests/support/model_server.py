"""A model server in a process of its own, for the tests that ask one."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

START_S = 90.0  # at most, to answer a ping


def free_port() -> int:
    """Return a port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def running_server(
    command: Sequence[str],
    port: int,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    start_s: float = START_S,
    path: str = "/ping",
) -> Iterator[str]:
    """Run ``command`` in ``folder`` until the block ends; give the address once ``path`` answers.

    What the server prints is in ``server.log`` of the folder.
    """
    log, url = folder / "server.log", f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # as at a terminal
        )  # fmt: skip
    try:
        deadline = time.monotonic() + start_s
        while not _answers(url + path):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the connection is closed."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
    return True
