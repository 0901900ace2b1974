"""The servers of a production set-up on loopback: PostgreSQL, a bucket and MLflow's server."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from model_server import free_port, running_server
from private_postgres import Postgres, missing_programs, private_postgres

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
