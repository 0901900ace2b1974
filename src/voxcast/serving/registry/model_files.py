"""The files of a model, by an address such as ``models:/voxcast@champion``, or by their folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ModelError
from voxcast.serving.registry import database as registry_database
from voxcast.serving.registry.lookup import (
    CHAMPION,
    CHAMPION_URI,
    MODEL_NAME,
    check_files,
    check_registry,
    downloaded,
    no_champion,
    no_version,
)
from voxcast.serving.registry.registered_files import index_sha256, verify_files

if TYPE_CHECKING:
    from voxcast.serving.registry.database import StoredVersion

SCHEME = "models:/"
_ADDRESS = re.compile(rf"{SCHEME}(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<number>[0-9]+))")


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model are.

    Attributes
    ----------
    folder : Path
        Folder of the model, as MLflow wrote it.
    version : str or None
        Number of its version; None if the address is a folder.
    index_sha256 : str or None
        Hash of ``bundle.json`` in the registry, if it has one.
    """

    folder: Path
    version: str | None = None
    index_sha256: str | None = None


def is_address(model: str) -> bool:
    """Whether a text is the address of a model in a registry, not a folder."""
    return model.startswith(SCHEME)


def model_files(address: str, uri: str) -> ModelFiles:
    """Return the files of a version in a registry; they are not written to.

    The database of a project is read directly. For other registries MLflow is asked, and the files
    are downloaded to a temporary folder if they are not on this machine.

    Parameters
    ----------
    address : str
        ``models:/NAME@ALIAS`` or ``models:/NAME/NUMBER``.
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If the address is of another form, or the registry has no such version or cannot be read,
        or the files of the version are gone or were changed.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        then = f"write {CHAMPION_URI} or {SCHEME}voxcast/3, or give a folder"
        raise ModelError("is not the address of a model", address, then)
    name, alias, number = (parts[group] or "" for group in ("name", "alias", "number"))
    database = registry_database.database_of(uri)
    if database is not None:
        version = _stored(uri, registry_database.versions(database, name), alias, number)
        check_files(version)
        if version.folder is not None:
            verify_files(version.folder, version.tags)
            return ModelFiles(version.folder, version.number, index_sha256(version.tags))
    check_registry(uri)
    folder, number, tags = downloaded(uri, name, alias=alias, number=number)
    return ModelFiles(folder, number, index_sha256(tags))


def champion_folder(uri: str, alias: str = CHAMPION) -> Path:
    """Return the folder of the champion's files, or of another alias; errors as `model_files`."""
    return model_files(f"{SCHEME}{MODEL_NAME}@{alias}", uri).folder


def _stored(uri: str, versions: list[StoredVersion], alias: str, number: str) -> StoredVersion:
    """Return the version with an alias or a number."""
    for version in versions:
        if alias in version.aliases if alias else version.number == number:
            return version
    if alias == CHAMPION:
        raise no_champion(uri)
    aliases = sorted({f"@{alias}" for version in versions for alias in version.aliases})
    numbers = [version.number for version in versions]
    label = f"alias {alias}" if alias else f"version {number}"
    raise no_version(uri, label, [*numbers, *aliases])
