"""The database of a search, by its address; the password is not part of it.

An address is passed on to workers by their command lines, which the list of processes and the
scripts of jobs show. So a password is left to where the driver looks: for PostgreSQL
``~/.pgpass`` or ``PGPASSWORD``, see "Environment Variables" in the manual of libpq.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from voxcast.errors import EXTRAS, ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import optuna

OPTION = "--storage"
ATTEMPTS, PAUSE_S = 10, 0.3
SECRETS = ("password", "passwd", "sslpassword")  # parameters of drivers, which are not addresses


def search_database(url: str) -> optuna.storages.RDBStorage:
    """Return the studies of a database, whose tables are made if they are missing.

    Raises
    ------
    ConfigError
        If it is not the address of a database, holds a password, or its driver is not installed.
    RunError
        If the database does not answer, or refuses.
    ModuleNotFoundError
        If a driver is missing that an extra of the package installs.
    """
    import optuna
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    _check(url)

    def connected() -> optuna.storages.RDBStorage:
        # A trial may take hours, after which a connection may be gone.
        return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})

    with database_problems(url):
        for _ in range(ATTEMPTS):
            with contextlib.suppress(IntegrityError, ProgrammingError):
                return connected()
            time.sleep(PAUSE_S)  # while another process makes the tables
        return connected()


@contextlib.contextmanager
def database_problems(url: str) -> Iterator[None]:
    """Report a database that does not answer, or refuses, as an error that users can act on."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        # Optuna hides the cause; the text of SQLAlchemy has the statement and its values.
        cause = error if isinstance(error, sqlalchemy.exc.SQLAlchemyError) else error.__cause__
        reason = str(getattr(cause, "orig", None) or cause or error).strip()
        then = "trials on record are kept, and the same command continues"
        raise RunError(f"the database failed ({reason.splitlines()[0]})", url, then) from None


def _check(url: str) -> None:
    import sqlalchemy

    try:
        address = sqlalchemy.make_url(url)
        if address.password is not None or any(name in address.query for name in SECRETS):
            problem = "holds a password, which the list of processes and scripts of jobs show"
            then = "leave it to ~/.pgpass or PGPASSWORD, for PostgreSQL"
            raise ConfigError(problem, OPTION, then)
        address.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        if error.name in EXTRAS:
            raise
        then = "install it, or name another, such as postgresql+psycopg"
        problem = f"the driver {error.name} is not installed"
        raise ConfigError(problem, OPTION, then) from None
    except (ValueError, sqlalchemy.exc.ArgumentError):  # it may hold a password: not repeated
        then = "write postgresql+psycopg://USER@HOST/DATABASE"
        raise ConfigError("is no address of a database", OPTION, then) from None
