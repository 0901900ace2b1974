"""Errors that users can act on: the problem, where it is, and what to do next.

Each is reported as one line on stderr, with exit code 2. Any other exception is a bug and keeps
its traceback.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import signal
import sys
from typing import TYPE_CHECKING

from voxcast import log

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_BAD_INPUT = 2

# Errors of the system whose cause is a path: its rights, its length, or what is there.
OF_THE_PATH = {
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}

# Modules that a plain installation lacks, and the extra of the package that installs each.
EXTRAS = {
    "ants": "apps",
    "nilearn": "apps",
    "dvc": "train",
    "hydra": "serve",
    "jinja2": "train",
    "matplotlib": "train",
    "omegaconf": "serve",
    "optuna": "train",
    "psycopg": "postgresql",
    "sklearn": "train",
    "threadpoolctl": "train",
    "torch": "train",
    "torchio": "apps",
    "mlflow": "serve",
    "fastapi": "serve",
    "orjson": "serve",
    "pebble": "serve",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "boto3": "s3",
    "_otf2": "traces",
    "mpi4py": "traces",
    "otf2": "traces",
}


class VoxcastError(Exception):
    """Base of all errors that a user can act on.

    Parameters
    ----------
    problem : str
        The problem, as one clause.
    where : str or os.PathLike, optional
        The file, key or name concerned.
    then : str, optional
        What the user can do next.
    """

    def __init__(self, problem: str, where: object = None, then: str | None = None) -> None:
        self.problem = problem
        self.where = None if where is None else str(where)
        self.then = then
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.problem if self.where is None else f"{self.where}: {self.problem}"
        return text if self.then is None else f"{text}; {self.then}"


class ImageError(VoxcastError):
    """A volume or an image set cannot be used."""


class ConfigError(VoxcastError):
    """A configuration file, key or name is wrong."""


class RunError(VoxcastError):
    """A run or its record cannot be created or read."""


class TableError(VoxcastError):
    """A history or feature table cannot be read or lacks required data."""


class ModelError(VoxcastError):
    """A model or the registry cannot be read or does not fit the request."""


class RequestError(ModelError):
    """The model refuses a request; it may answer others."""


class RowError(RequestError):
    """A row of a request is refused.

    Parameters
    ----------
    number : int
        The row, from 0.
    reason : Exception
        Why, without the number.
    """

    def __init__(self, number: int, reason: VoxcastError) -> None:
        self.reason = reason
        super().__init__(f"row {number}: {reason}")


class UnlearnedError(ModelError):
    """No model of an application was learned."""


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line."""
    return " ".join(str(error).split())


def exits_cleanly(main: Callable[..., int]) -> Callable[..., int]:
    """Report user errors of an entry point as one line on stderr and exit with code 2.

    The package's log messages go to stderr too, see `voxcast.log`.
    """

    @functools.wraps(main)
    def wrapped(*args: object, **kwargs: object) -> int:
        try:
            _raise_interruptions()
            log.configure()
            if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
                # The name of a file may hold bytes that are no text.
                sys.stdout.reconfigure(errors="backslashreplace")
            return main(*args, **kwargs)
        except VoxcastError as error:
            print(f"voxcast: {one_line(error)}", file=sys.stderr)
        except KeyboardInterrupt:
            print("voxcast: interrupted; finished work is kept", file=sys.stderr)
            return 130
        except BrokenPipeError:
            sys.stderr.close()  # the reader of the output has exited
            return 141
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            needed = f"needs {error.name}: pip install 'voxcast[{EXTRAS[error.name]}]'"
            print(f"voxcast: {needed}", file=sys.stderr)
        except Exception as error:
            problem = system_problem(error)
            if problem is None:
                raise
            print(f"voxcast: {one_line(problem)}", file=sys.stderr)
        return EXIT_BAD_INPUT

    return wrapped


def _raise_interruptions() -> None:
    """Undo `voxcast.interruptions`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def system_problem(error: Exception) -> VoxcastError | None:
    """Return what the user can act on in an error of the system; None for any other error."""
    if is_disk_full(error):
        where = getattr(error, "filename", None) or "output"
        then = "free some and run the same command again, finished work is kept"
        return VoxcastError("no space left on the device", where, then)
    path = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if isinstance(error, OSError) and error.errno in OF_THE_PATH and path is not None:
        if os.path.basename(path).startswith(".partial-"):  # noqa: PTH119  # see voxcast.files
            path = os.path.dirname(path)  # noqa: PTH120  # the user knows the folder only
        return VoxcastError((error.strerror or "cannot be used").lower(), path)
    return None


def is_disk_full(error: Exception) -> bool:
    """Tell whether an error of the system or of a library is of a full disk or quota."""
    # Libraries wrap the system error; Arrow, SQLite and MLflow only quote its text.
    quoted = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")
    number = getattr(error, "errno", None)
    return number in (errno.ENOSPC, errno.EDQUOT) or any(text in str(error) for text in quoted)
