"""Looking a version up, in the database of a project or by MLflow wherever the registry is."""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ModelError, UnlearnedError
from voxcast.files import remove_folder
from voxcast.serving.registry import database as registry_database
from voxcast.serving.registry import sql_server, tracking_server
from voxcast.serving.registry.database import StoredVersion
from voxcast.serving.registry.registered_files import verify_files
from voxcast.serving.registry.sql_server import without_password

if TYPE_CHECKING:
    from collections.abc import Iterable

MODEL_NAME = "voxcast"
CHAMPION = "champion"
CHAMPION_URI = f"models:/{MODEL_NAME}@{CHAMPION}"
# By which MLflow says that a registry has no such model or alias.
NO_CHAMPION_CODES = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def version_in_database(uri: str, alias: str = CHAMPION) -> StoredVersion | None:
    """Return the version with an alias in the database of a project; None for other registries.

    Raises
    ------
    ModelError
        If the registry cannot be read, has no such version, or its files are gone.
    """
    database = registry_database.database_of(uri)
    if database is None:
        return None
    version = registry_database.version_with_alias(database, MODEL_NAME, alias)
    if version is None:
        raise no_champion(uri)
    check_files(version)
    return version


def check_files(version: StoredVersion) -> None:
    """Check that the files of a version are on this machine, or in a store elsewhere.

    Raises
    ------
    ModelError
        If they were on this machine and are gone.
    """
    if version.folder is None and "://" not in version.location.removeprefix("file://"):
        fix = "bring them back; `voxcast learn` registers a model again"
        raise ModelError(f"the files of version {version.number} are gone", version.location, fix)


def check_registry(uri: str) -> None:
    """Check that a registry can be read, before MLflow is asked.

    Raises
    ------
    ModelError
        If its database is missing or damaged, or its server does not answer or has no driver here.
    """
    database = registry_database.database_of(uri)
    if database is not None:
        registry_database.check(database)
    elif tracking_server.is_server(uri):
        tracking_server.check(uri)
        tracking_server.limit_waiting()
    elif sql_server.is_sql_server(uri):
        sql_server.check(uri)


def downloaded(
    uri: str, name: str, *, alias: str = "", number: str = ""
) -> tuple[Path, str, dict[str, str]]:
    """Return the folder of a version's files, its number and its tags, by MLflow.

    Parameters
    ----------
    uri : str
        Tracking address.
    name : str
        Name of the registered model.
    alias, number : str
        Either of them names the version.

    Raises
    ------
    ModelError
        If the registry has no such version, or its files cannot be read.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    for logged in ("mlflow", "alembic"):  # they log every step of their start-up
        logging.getLogger(logged).setLevel(logging.ERROR)
    label = alias or f"version {number}"
    try:
        with contextlib.redirect_stdout(sys.stderr):
            client = mlflow.MlflowClient(uri, uri)
            if alias:
                number = str(client.get_model_version_by_alias(name, alias).version)
            tags = dict(client.get_model_version(name, number).tags)
            files = download(client.get_model_version_download_uri(name, number), uri)
    except MlflowException as error:
        if error.error_code in NO_CHAMPION_CODES:
            if alias == CHAMPION:
                raise no_champion(uri) from error
            raise no_version(uri, label) from error
        raise _unreadable(label, uri, error) from error
    except (OSError, ImportError) as error:
        raise _unreadable(label, uri, error) from error
    verify_files(files, tags)
    return files, number, tags


def _unreadable(label: str, uri: str, error: Exception) -> ModelError:
    return ModelError(f"the {label} cannot be loaded: {error}", without_password(uri))


def no_version(uri: str, label: str, present: Iterable[str] = ()) -> ModelError:
    """Return the error of a registry without a version; ``present`` are those that it has."""
    names = ", ".join(present)
    return ModelError(
        f"the registry has no {label}" + (f"; it has {names}" if names else ""),
        without_password(uri), "`voxcast models` lists the versions",
    )  # fmt: skip


def download(location: str, uri: str) -> Path:
    """Copy artifacts to a temporary folder, which goes when this process ends; errors of MLflow.

    Parameters
    ----------
    location : str
        Address of a folder of artifacts.
    uri : str
        Tracking address.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR

    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
    folder = Path(tempfile.mkdtemp(prefix="voxcast-model-"))
    atexit.register(remove_folder, folder)
    return Path(
        download_artifacts(location, dst_path=str(folder), tracking_uri=uri, registry_uri=uri)
    )


def no_champion(uri: str) -> ModelError:
    """Return the error of a registry without a champion."""
    where = without_password(uri)
    return UnlearnedError("the registry has no champion", where, "train one with `voxcast learn`")
