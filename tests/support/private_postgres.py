"""A private PostgreSQL from Debian's packages, for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "postgresql"
USER, DATABASE, PASSWORD = "tuner", "postgres", "correct horse"
UNPRIVILEGED = "postgres"  # whom the package makes; the server refuses to run as root


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in ("initdb", "pg_ctl") if _program(name) is None]


def _program(name: str) -> str | None:
    """Return a program of the newest release; Debian does not put them on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name))
    return shutil.which(name, path=os.pathsep.join(map(str, reversed(folders)))) or shutil.which(
        name
    )


@dataclass(frozen=True)
class Postgres:
    """A server that asks for a password, and listens at a Unix socket only.

    Attributes
    ----------
    folder : Path
        Of its data and socket.
    """

    folder: Path

    @property
    def url(self) -> str:
        """Address without the password."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={self.folder / 'socket'}"

    @property
    def password_file(self) -> Path:
        """What ``PGPASSFILE`` names."""
        return self.folder / "pgpass"

    def make(self) -> None:
        """Make a database in an empty folder."""
        self.password_file.write_text(f"*:*:*:{USER}:{PASSWORD}\n")
        self.password_file.chmod(0o600)
        password = self.folder / "password"
        password.write_text(f"{PASSWORD}\n")
        (self.folder / "socket").mkdir()
        if (user := _server_user()) is not None:
            for path in (self.folder, self.folder / "socket", password):
                shutil.chown(path, user)
        _run(
            "initdb", "-D", str(self.folder / "data"), "-U", USER, "-A", "scram-sha-256",
            f"--pwfile={password}", "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        socket = self.folder / "socket"
        options = f"-c listen_addresses='' -c unix_socket_directories={socket} -F"
        log = str(self.folder / "log")
        _run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        """Stop it, and close all connections."""
        _run("pg_ctl", "-D", str(self.folder / "data"), "-m", "fast", "-w", "stop")


@contextlib.contextmanager
def private_postgres() -> Iterator[Postgres]:
    """Run a server in a folder of its own."""
    # Below /tmp, as the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="postgres-", dir="/tmp") as name:
        server = Postgres(Path(name))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _server_user() -> str | None:
    return UNPRIVILEGED if os.geteuid() == 0 else None


def _run(name: str, *arguments: str) -> None:
    program = _program(name)
    assert program is not None, name
    # A server would keep a pipe open for as long as it runs.
    ended = subprocess.run(
        [program, *arguments], user=_server_user(), cwd="/", check=False, timeout=120,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, f"{name}: exit code {ended.returncode}"
