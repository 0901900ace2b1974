"""The servers of a production set-up on loopback: PostgreSQL, a bucket and MLflow's server."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from model_server import free_port, running_server

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


BUCKET = "voxcast"
COMPOSE = Path(__file__).parents[2] / "compose.yaml"
BINARIES = Path(sys.executable).parent
# The test server takes any; they are what a user would have, and are looked for in files.
ACCESS = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "of-the-bucket",
          "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip


def missing() -> list[str]:
    """Return what is not installed."""
    moto = [] if (BINARIES / "moto_server").is_file() else ["moto_server"]
    return [*missing_programs(), *moto]


@dataclass(frozen=True)
class Servers:
    """Addresses of the servers.

    Attributes
    ----------
    postgres : Postgres
        The database.
    s3 : str
        Address of the server of buckets; it has a bucket `BUCKET`.
    mlflow : str
        Address of MLflow's server.
    """

    postgres: Postgres
    s3: str
    mlflow: str

    def keys(self, prefix: str) -> list[str]:
        """Return the names of the objects in the bucket below a prefix."""
        return [entry["Key"] for page in _client(self.s3).get_paginator("list_objects_v2")
                .paginate(Bucket=BUCKET, Prefix=prefix)
                for entry in page.get("Contents", ())]  # fmt: skip


def plain_environment() -> dict[str, str]:
    """Return the environment without any address or key of a store."""
    stores = ("MLFLOW", "AWS_", "PG", "VOXCAST_PROJECT")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(stores)}
    path = f"{BINARIES}{os.pathsep}{variables['PATH']}"
    return {**variables, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
            "DVC_NO_ANALYTICS": "true", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip


@contextlib.contextmanager
def production_servers(folder: Path) -> Iterator[Servers]:
    """Run the three servers; their logs are in ``folder``."""
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(private_postgres())
        s3 = stack.enter_context(_server(folder, "s3", ["moto_server", "-H", "127.0.0.1", "-p"],
                                         "/moto-api/", plain_environment()))  # fmt: skip
        _client(s3).create_bucket(Bucket=BUCKET)
        command = _command_of_compose(postgres.url)
        variables = {**plain_environment(), **ACCESS, "MLFLOW_S3_ENDPOINT_URL": s3,
                     "PGPASSFILE": str(postgres.password_file)}  # fmt: skip
        mlflow = stack.enter_context(_server(folder, "mlflow", command, "/health", variables))
        yield Servers(postgres, s3, mlflow)


def _command_of_compose(database: str) -> list[str]:
    """Return the command of MLflow's server of compose.yaml, on loopback, without a port."""
    command = yaml.safe_load(COMPOSE.read_text())["services"]["mlflow"]["command"]
    here = {
        "--host=0.0.0.0": "--host=127.0.0.1",
        "--backend-store-uri=postgresql+psycopg://voxcast@postgres/mlflow": (
            f"--backend-store-uri={database}"
        ),
    }
    assert set(here) <= set(command)
    return [here.get(word, word) for word in command if not word.startswith("--port=")] + [
        "--port"
    ]


@contextlib.contextmanager
def _server(
    folder: Path, name: str, command: list[str], path: str, variables: Mapping[str, str]
) -> Iterator[str]:
    port = free_port()
    (folder / name).mkdir()
    # The names by which it may be called have a port too.
    words = [word.replace("127.0.0.1:5000", f"127.0.0.1:{port}") for word in command]
    words = [str(BINARIES / words[0]), *words[1:], str(port)]
    with running_server(words, port, folder / name, variables, 300, path) as url:
        yield url


def _client(address: str):  # boto3 makes its classes when it runs
    import boto3

    names = ("aws_access_key_id", "aws_secret_access_key", "region_name")
    return boto3.client(
        "s3", endpoint_url=address, **dict(zip(names, ACCESS.values(), strict=True))
    )
