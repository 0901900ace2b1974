"""A private PostgreSQL from Debian's packages, for tests."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

USER, DATABASE, PASSWORD = "tuner", "postgres", "correct horse"
# Whom the package makes; the server refuses to run as root.
UNPRIVILEGED = "postgres" if os.geteuid() == 0 else None


class Postgres(NamedTuple):
    """A server that asks for a password, and listens at a Unix socket only.

    Attributes
    ----------
    url : str
        Address without the password.
    password_file : Path
        What ``PGPASSFILE`` names.
    """

    url: str
    password_file: Path


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in ("initdb", "pg_ctl") if _program(name) is None]


def _program(name: str) -> str | None:
    """Return a program of the newest release; Debian does not put them on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    path = os.pathsep.join([*map(str, reversed(folders)), os.environ["PATH"]])
    return shutil.which(name, path=path)


@contextlib.contextmanager
def private_postgres() -> Iterator[Postgres]:
    """Run a server in a folder of its own."""
    # Below /tmp, as the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="postgres-", dir="/tmp") as name:
        folder = Path(name)
        data, socket = folder / "data", folder / "socket"
        password, password_file = folder / "password", folder / "pgpass"
        password.write_text(f"{PASSWORD}\n")
        password_file.write_text(f"*:*:*:{USER}:{PASSWORD}\n")
        password_file.chmod(0o600)
        socket.mkdir()
        if UNPRIVILEGED:
            for path in (folder, socket, password):
                shutil.chown(path, UNPRIVILEGED)
        _run(
            "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}",
            "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories={socket} -F"
        _run("pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
        try:
            url = f"postgresql+psycopg://{USER}@/{DATABASE}?host={socket}"
            yield Postgres(url, password_file)
        finally:
            _run("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")


def _run(name: str, *arguments: object) -> None:
    # A server would keep a pipe open for as long as it runs.
    ended = subprocess.run(
        [str(_program(name)), *map(str, arguments)], user=UNPRIVILEGED, cwd="/", check=False,
        timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, f"{name}: exit code {ended.returncode}"
