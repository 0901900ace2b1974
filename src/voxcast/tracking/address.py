"""Where MLflow's runs and versions are: a project's database, or a server.

MLflow waits for minutes for a server that is not there; `check` asks first, and waits for seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from voxcast.errors import EXTRAS, ModelError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE = "mlflow.db"  # of a project
ARTIFACTS = "mlruns"  # folder of the files that MLflow keeps, beside the database
SQLITE = "sqlite:///"
WAIT_S = 10  # for a server
HEALTH = "/health"  # of MLflow's server; it needs no password
# MLflow's own limits, in whole seconds and repetitions; values that the user sets are kept.
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(WAIT_S),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
_SQL_SERVERS = re.compile(r"(?:postgresql|mysql|mssql)(?:\+\w+)?://")
_SECRETS = re.compile(r"(?i)\b(password|passwd|sslpassword)=[^&]*")


def tracking_uri(project: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or the address of the project's database."""
    return os.environ.get(TRACKING_VARIABLE) or address_of(project.resolve() / DATABASE)


def address_of(database: Path) -> str:
    """Return the address by which MLflow finds a database.

    Raises
    ------
    ModelError
        If MLflow could not find the files of models beside it.

    Examples
    --------
    >>> address_of(Path("/data/a b/mlflow.db"))
    'sqlite:////data/a b/mlflow.db'
    """
    path = str(database)
    if {*path} & {*"%?"}:  # which MLflow decodes in some places and not in others
        problem = "a path with % or ? is another one to MLflow"
        raise ModelError(problem, database.parent, "rename the folder")
    return f"{SQLITE}{path}"


def path_of(uri: str) -> Path | None:
    """Return the database file of an address, whether it exists or not; None for other addresses.

    Examples
    --------
    >>> path_of("sqlite:////data/a%20b/mlflow.db")
    PosixPath('/data/a b/mlflow.db')
    """
    if not uri.startswith(SQLITE) or "?" in uri:  # options of SQLAlchemy follow it
        return None
    return Path(unquote(uri.removeprefix(SQLITE)))  # as SQLAlchemy decodes it


def is_mlflow_server(uri: str) -> bool:
    """Whether an address belongs to MLflow's server."""
    return uri.startswith(("http://", "https://"))


def without_password(uri: str) -> str:
    """Return an address as it may be written to a file or a message.

    Examples
    --------
    >>> without_password("postgresql+psycopg://voxcast:secret@db:5432/mlflow")
    'postgresql+psycopg://voxcast@db:5432/mlflow'
    >>> without_password("postgresql+psycopg:///mlflow?host=/run&password=secret")
    'postgresql+psycopg:///mlflow?host=/run&password=***'
    """
    scheme, separator, rest = uri.partition("://")
    login, at, place = rest.rpartition("@")
    if separator and at and "/" not in login:
        uri = f"{scheme}://{login.partition(':')[0]}@{place}"
    return _SECRETS.sub(r"\1=***", uri)


def check(uri: str) -> None:
    """Check that a server answers, before MLflow is asked; a file is left to MLflow.

    Raises
    ------
    ModelError
        If it does not answer, or its driver is not installed.
    """
    if is_mlflow_server(uri):
        os.environ.update({**_LIMITS, **os.environ})
        _check_mlflow_server(uri)
    elif _SQL_SERVERS.match(uri):
        _check_sql_server(uri)


@contextlib.contextmanager
def errors_of_mlflow(uri: str) -> Iterator[None]:
    """Check that a server answers, and make what MLflow raises in the block one line.

    Raises
    ------
    ModelError
        As `check`, or if MLflow or its database refuses something.
    """
    check(uri)
    import mlflow
    import sqlalchemy

    for name in ("mlflow", "alembic"):  # they log every step of their start
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = one_line(getattr(error, "orig", None) or error)
        then = "bring back a copy, or move the database away: the next `dvc repro` begins another"
        raise ModelError(reason, without_password(uri), then) from error
    except (mlflow.MlflowException, OSError, ImportError) as error:
        then = f"see {TRACKING_VARIABLE}"
        raise ModelError(one_line(error), without_password(uri), then) from error


def _check_mlflow_server(uri: str) -> None:
    """Check that it answers at all; MLflow's client reads the answer."""
    import httpx

    try:
        httpx.get(uri.rstrip("/") + HEALTH, timeout=WAIT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"the tracking server is not there: {one_line(error)}"
        if isinstance(error, httpx.TimeoutException):
            problem = f"the tracking server does not answer within {WAIT_S} s"
        raise ModelError(problem, uri, f"see {TRACKING_VARIABLE}") from None


def _check_sql_server(uri: str) -> None:
    """Check that it answers and lets the user in."""
    import sqlalchemy

    where = without_password(uri)
    try:
        # The limit is one of libpq.
        options = {"connect_timeout": WAIT_S} if "+psycopg" in uri else {}
        engine = sqlalchemy.create_engine(uri, connect_args=options)
        engine.connect().close()
        engine.dispose()
    except ModuleNotFoundError as error:
        name = str(error.name)
        install = f"voxcast[{EXTRAS[name]}]" if name in EXTRAS else name
        problem = f"the driver {name} of this database is not installed"
        raise ModelError(problem, where, f"pip install '{install}'") from None
    except (ValueError, sqlalchemy.exc.ArgumentError):  # whose message may hold a password
        then = "write postgresql+psycopg://USER@HOST/DATABASE"
        raise ModelError("is no address of a database", TRACKING_VARIABLE, then) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        then = f"see {TRACKING_VARIABLE}; a password belongs in ~/.pgpass or PGPASSWORD"
        raise ModelError(f"the database server does not answer: {reason}", where, then) from None
