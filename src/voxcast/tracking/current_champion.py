"""The champion of a project as its users need it: its number, or the model in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.serving.local_model import LocalModel
from voxcast.serving.registry.lookup import CHAMPION_URI, version_in_database
from voxcast.serving.registry.model_files import model_files
from voxcast.tracking.registered_versions import required_champion

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.serving.champion import Champion


def champion_number(uri: str) -> str:
    """Return the number of the champion's version.

    Parameters
    ----------
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If there is no champion, or the registry cannot be read.
    """
    stored = version_in_database(uri)
    return required_champion(uri).number if stored is None else stored.number


def local_model(uri: str, machines: Path | None = None) -> LocalModel:
    """Open the champion; its forecasters are read when they are first asked.

    Parameters
    ----------
    uri : str
        Tracking address.

    Raises
    ------
    ModelError
        If there is no champion or its files cannot be read.
    """
    files = model_files(CHAMPION_URI, uri)
    return LocalModel.load(files.folder, machines, files.version, files.index_sha256)


def local_champion(uri: str, app: str | None = None, machines: Path | None = None) -> Champion:
    """Return the champion in this process, with the defaults of an application.

    ``machines`` is the file of `voxcast.serving.machine_file`.

    Raises
    ------
    ModelError
        See `local_model` and `voxcast.serving.bundle.Bundle.app_named`.
    """
    model = local_model(uri, machines)
    served = model.bundle.app_named(app)
    from voxcast.serving.champion import Champion  # numpy: after everything that may be refused

    return Champion.of(model, served)
