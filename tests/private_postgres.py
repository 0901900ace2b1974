"""A private PostgreSQL on a Unix socket, from Debian's packages, for one test."""

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
class PrivatePostgres:
    """A running server that asks for a password.

    Attributes
    ----------
    folder : Path
        Of its socket.
    password_file : Path
        As ``PGPASSFILE`` names it.
    """

    folder: Path
    password_file: Path

    @property
    def url(self) -> str:
        """Address without the password, in the form that SQLAlchemy documents."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={self.folder}"


@contextlib.contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Run a server in a folder of its own; it listens at no port."""
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    # Below /tmp, as the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        folder = Path(name)
        for part in ("socket", "log"):
            (folder / part).mkdir()
        password_file = folder / "pgpass"
        password_file.write_text(f"*:*:*:{USER}:{PASSWORD}\n")
        password_file.chmod(0o600)
        secret = folder / "secret"
        secret.write_text(f"{PASSWORD}\n")
        folder.chmod(0o711)
        if user is not None:
            for path in (folder, folder / "socket", folder / "log", secret):
                shutil.chown(path, user)
        data = str(folder / "data")
        _run(
            "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}",
            "--no-sync", "--encoding=UTF8", "--locale=C", user=user,
        )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories={folder / 'socket'} -F"
        log = str(folder / "log" / "server")
        _run("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start", user=user)
        try:
            yield PrivatePostgres(folder / "socket", password_file)
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop", user=user)


def _run(name: str, *arguments: str, user: str | None) -> None:
    program = _program(name)
    assert program is not None, name
    # Output into a pipe would keep the pipe open as long as the server runs.
    ended = subprocess.run(
        [program, *arguments], user=user, cwd="/", check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 0, f"{name}: exit code {ended.returncode}"
