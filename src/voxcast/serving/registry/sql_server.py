"""A registry in a database server that is reached without a tracking server."""

from __future__ import annotations

import re

from voxcast.errors import EXTRAS, ModelError

_SCHEMES = re.compile(r"(?:postgresql|mysql|mssql)(?:\+\w+)?")
_TIMEOUT_S = 10
_SECRETS = re.compile(r"(?i)\b(password|passwd|sslpassword)=[^&]*")


def is_sql_server(uri: str) -> bool:
    """Whether a tracking address is that of a database server.

    Examples
    --------
    >>> is_sql_server("postgresql+psycopg://voxcast@db/mlflow")
    True
    >>> is_sql_server("sqlite:////data/mlflow.db")
    False
    """
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and _SCHEMES.fullmatch(scheme) is not None


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
    """Check that a database server answers and lets the user in; MLflow would try for minutes.

    Raises
    ------
    ModelError
        If it does not, or its driver is not installed.
    """
    import sqlalchemy

    where = without_password(uri)
    try:
        address = sqlalchemy.make_url(uri)
        limit = {"connect_timeout": _TIMEOUT_S}  # of libpq
        is_libpq = address.get_driver_name().startswith("psycopg")
        options = limit if is_libpq and "connect_timeout" not in address.query else {}
        engine = sqlalchemy.create_engine(address, connect_args=options)
        try:
            engine.connect().close()
        finally:
            engine.dispose()
    except ModuleNotFoundError as error:
        name = str(error.name)
        install = f"voxcast[{EXTRAS[name]}]" if name in EXTRAS else name
        problem = f"the driver {name} of this database is not installed"
        raise ModelError(problem, where, f"pip install '{install}'") from None
    except (ValueError, sqlalchemy.exc.ArgumentError):  # whose message may hold a password
        then = "write postgresql+psycopg://USER@HOST/DATABASE"
        raise ModelError("is no address of a database", "MLFLOW_TRACKING_URI", then) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        then = "see MLFLOW_TRACKING_URI; a password belongs in ~/.pgpass or PGPASSWORD"
        raise ModelError(f"the database server does not answer: {reason}", where, then) from None
