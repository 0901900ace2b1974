"""The champion of a project as its users need it: in this process, or as a server reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.serving.champion_folder import MODEL_NAME, champion_folder, version_in_database
from voxcast.serving.local_model import LocalModel
from voxcast.tracking.registry import required_champion
from voxcast.tracking.runs import tracking_uri

if TYPE_CHECKING:
    from voxcast.serving.champion import Champion


def served_champion(project: Path | None) -> tuple[str, str]:
    """Return the number of the champion's version, and its address as MLflow reads it.

    The address is a folder where the files are on this machine: MLflow writes into the folder of
    a model that it finds by name.

    Raises
    ------
    ModelError
        If there is no champion, or the registry cannot be read.
    """
    stored = version_in_database(tracking_uri(project or Path.cwd()))
    if stored is not None and stored.folder is not None:
        return stored.number, str(stored.folder)
    number = required_champion(project).number
    return number, f"models:/{MODEL_NAME}/{number}"


def local_model(project: Path | None) -> LocalModel:
    """Open the champion; its forecasters are read when they are first asked.

    Parameters
    ----------
    project : Path or None
        Project with the database that is used if ``MLFLOW_TRACKING_URI`` is not set.

    Raises
    ------
    ModelError
        If there is no champion or its files cannot be read.
    """
    return LocalModel.load(champion_folder(tracking_uri(project or Path.cwd())))


def local_champion(project: Path | None, app: str | None = None) -> Champion:
    """Return the champion in this process, with the defaults of an application.

    Raises
    ------
    ModelError
        See `local_model` and `voxcast.serving.bundle.Bundle.app_named`.
    """
    model = local_model(project)
    served = model.bundle.app_named(app)
    from voxcast.serving.champion import Champion  # numpy: after everything that may be refused

    return Champion(
        model.predict, served.name, served.configurations, served.coarse_points,
        host_classes=served.host_classes, measured=served.measured,
    )  # fmt: skip
