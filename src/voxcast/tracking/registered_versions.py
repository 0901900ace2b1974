"""The versions of the registered model, read without MLflow where the registry is a database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from voxcast.errors import ModelError, one_line
from voxcast.serving.bundle import ARTIFACTS, FOLDER, Bundle
from voxcast.serving.registry import database as registry_database
from voxcast.serving.registry.lookup import (
    CHAMPION,
    MODEL_NAME,
    NO_CHAMPION_CODES,
    check_registry,
    download,
    no_champion,
)
from voxcast.serving.registry.registered_files import index_sha256
from voxcast.serving.registry.sql_server import without_password

LISTED = "`voxcast models` lists the versions"


@dataclass(frozen=True)
class Version:
    """A version of the registered model.

    Attributes
    ----------
    number : str
        Its number.
    is_champion : bool
        Whether it is the champion.
    run_id : str
        The run under which it was logged.
    location : str
        Where the files of the model are: a folder, or an address that MLflow can read.
    tags : dict of str to str
        Its tags.
    """

    number: str
    is_champion: bool
    run_id: str
    location: str
    tags: dict[str, str]

    @property
    def apps(self) -> dict[str, dict[str, Any] | None]:
        """Facts by application, see `voxcast.tracking.registry.SUMMARY`; None if damaged."""
        try:
            return dict(json.loads(self.tags.get("apps", "{}")))
        except (ValueError, TypeError):  # edited by hand
            return {}


def versions(uri: str) -> list[Version]:
    """Return all versions of the registered model, newest first.

    Parameters
    ----------
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If the registry cannot be read.
    """
    database = registry_database.database_of(uri)
    if database is None:
        return _versions_by_mlflow(uri)
    return [
        Version(
            stored.number,
            CHAMPION in stored.aliases,
            stored.run_id,
            stored.location if stored.folder is None else str(stored.folder),
            stored.tags,
        )
        for stored in registry_database.versions(database, MODEL_NAME)
    ]


def applications(uri: str) -> list[str]:
    """Return the names of all applications that a version has, sorted; errors as `versions`."""
    return sorted({app for version in versions(uri) for app in version.apps})


def _versions_by_mlflow(uri: str) -> list[Version]:
    check_registry(uri)
    import mlflow
    from mlflow.exceptions import MlflowException

    numbers: dict[str, Any] = {}
    try:
        client = mlflow.MlflowClient(uri, uri)
        stored = client.search_model_versions(f"name = '{MODEL_NAME}'")
        for alias in (CHAMPION,):
            try:
                numbers[alias] = client.get_model_version_by_alias(MODEL_NAME, alias).version
            except MlflowException as error:
                if error.error_code not in NO_CHAMPION_CODES:
                    raise
        return [
            Version(
                str(version.version),
                version.version == numbers.get(CHAMPION),
                str(version.run_id),
                client.get_model_version_download_uri(MODEL_NAME, version.version),
                dict(version.tags),
            )
            for version in sorted(stored, key=lambda version: -int(version.version))
        ]
    except (MlflowException, OSError, ImportError) as error:
        raise ModelError(f"cannot be read: {one_line(error)}", without_password(uri)) from error


def champion(uri: str) -> Version | None:
    """Return the current champion, or None if the registry has none; errors as `versions`."""
    return next((version for version in versions(uri) if version.is_champion), None)


def version_or_champion(uri: str, number: str | None) -> Version:
    """Return a version, or the champion if none is named; errors as of either."""
    return version_numbered(uri, number) if number else required_champion(uri)


def required_champion(uri: str) -> Version:
    """Return the current champion.

    Raises
    ------
    ModelError
        If there is none, or the registry cannot be read.
    """
    current = champion(uri)
    if current is None:
        raise no_champion(uri)
    return current


def version_numbered(uri: str, number: str) -> Version:
    """Return a version.

    Raises
    ------
    ModelError
        If there is no such version, or the registry cannot be read.
    """
    present = versions(uri)
    for version in present:
        if version.number == number:
            return version
    numbers = ", ".join(version.number for version in present) or "none"
    raise ModelError(f"no such version; the model has {numbers}", f"version {number}")


def bundle_of(uri: str, version: Version) -> Bundle:
    """Open the bundle of a version, downloaded unless the artifacts are on this machine.

    Raises
    ------
    ModelError
        If its files cannot be read, or were changed since they were registered.
    """
    folder = bundle_folder(uri, version)
    if folder is None:
        raise ModelError(
            "has no files of this release", f"version {version.number}", "run `make repro`"
        )
    return Bundle.load(folder, index_sha256(version.tags))


def model_folder(uri: str, version: Version) -> Path:
    """Return the folder of all files of a version, downloaded unless they are on this machine.

    Raises
    ------
    ModelError
        If they cannot be read.
    """
    where = f"version {version.number}"
    parts = urlsplit(version.location)
    if parts.scheme in ("", "file"):
        folder = Path(unquote(parts.path) if parts.scheme else version.location)
        if not folder.is_dir():
            raise ModelError("has no files", where, LISTED)
        return folder
    from mlflow.exceptions import MlflowException

    try:
        return download(version.location, uri)
    except (MlflowException, OSError) as error:
        raise ModelError(f"cannot be read: {one_line(error)}", where, LISTED) from error


def bundle_folder(uri: str, version: Version) -> Path | None:
    """Return the folder of a version's bundle; None if it has none, as those of old releases.

    Raises
    ------
    ModelError
        If the server cannot be read. A champion that cannot be reached now must not be taken for
        one that is lost.
    """
    parts = urlsplit(version.location)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else version.location
        local = Path(path, ARTIFACTS, FOLDER)
        return local if local.is_dir() else None
    from mlflow.artifacts import list_artifacts
    from mlflow.exceptions import MlflowException

    try:
        entries = list_artifacts(f"{version.location}/{ARTIFACTS}", tracking_uri=uri)
        if not any(entry.path.rpartition("/")[2] == FOLDER for entry in entries):
            return None
        return download(f"{version.location}/{ARTIFACTS}/{FOLDER}", uri)
    except (MlflowException, OSError) as error:
        raise ModelError(
            f"cannot be read: {one_line(error)}",
            f"version {version.number}",
            "see `voxcast models`",
        ) from error
