"""The MariaDB in which the accounting of a private Slurm is, see `private_slurm`."""

from __future__ import annotations

from pathlib import Path

# What slurmdbd needs before its first start.
STATEMENTS = (
    "create database slurm_acct; create user slurm@'127.0.0.1' identified by 'slurm'; "
    "grant all on slurm_acct.* to slurm@'127.0.0.1';"
)


def install_command(folder: Path, user: str) -> list[str]:
    """Return the command that makes the files of an empty database in ``folder``."""
    return [
        "mariadb-install-db", "--no-defaults", f"--user={user}", f"--datadir={folder / 'data'}",
        "--auth-root-authentication-method=normal", "--skip-test-db",
    ]  # fmt: skip


def daemon_command(folder: Path, user: str, port: int) -> list[str]:
    """Return the command of the daemon, which listens on loopback."""
    return [
        "mariadbd", "--no-defaults", f"--user={user}", f"--datadir={folder / 'data'}",
        f"--socket={_socket(folder)}", f"--pid-file={folder / 'pid'}",
        "--bind-address=127.0.0.1", f"--port={port}", "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        "--skip-name-resolve",
    ]  # fmt: skip


def client_options(folder: Path) -> list[str]:
    """Return the options by which clients reach the daemon."""
    return ["--no-defaults", "-S", _socket(folder), "-uroot"]


def _socket(folder: Path) -> str:
    return str(folder / "s")  # paths of sockets have 107 characters at most
