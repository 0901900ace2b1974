"""The champion of a project as its users need it: in this process, or as a server reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.serving.champion_folder import MODEL_NAME, champion_folder, version_in_database
from voxcast.serving.local_model import LocalModel
from voxcast.tracking.registered_versions import required_champion

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast.serving.champion import Champion


def served_champion(uri: str) -> tuple[str, str]:
    """Return the number of the champion's version, and its address as MLflow reads it.

    The address is a folder where the files are on this machine: MLflow writes into the folder of
    a model that it finds by name.

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
    if stored is not None and stored.folder is not None:
        return stored.number, str(champion_folder(uri))
    number = required_champion(uri).number
    return number, f"models:/{MODEL_NAME}/{number}"


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
    return LocalModel.load(champion_folder(uri), machines)


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

    return Champion(
        model.predict, served.name, served.configurations, served.coarse_points,
        host_classes=served.host_classes, measured=served.measured,
        characteristics=served.characteristics,
    )  # fmt: skip
