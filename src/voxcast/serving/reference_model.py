"""The reference model of the package: answers without a project, from the recorded campaigns.

It was measured on another machine, so its bounds are not calibrated here until ``voxcast measure
--host`` has made some runs. Where there is no project, these are kept in a folder of the user.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project as projects
from voxcast.files import atomic_folder
from voxcast.serving.model_store import MODELS, ModelStore
from voxcast.serving.prediction_service import PredictionService

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCE = Path(__file__).parents[1] / "reference"


def user_project() -> Path:
    """Return the folder of this user in which a machine is measured outside of any project."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "voxcast"


def reference_service() -> PredictionService:
    """Return the reference model, with the speeds that this user has measured."""
    folder = user_project()
    if (folder / projects.PROJECT_FILE).is_file() and (folder / MODELS).is_dir():
        return PredictionService.of_project(folder)
    return PredictionService(ModelStore(REFERENCE).open(), None)


def measured_project(create: Callable[[Path], object]) -> Path:
    """Return the folder of this user, made if missing, with the reference model as champion.

    Parameters
    ----------
    create : callable
        Writes the files of a project into a folder.

    Raises
    ------
    VoxcastError
        If the folder cannot be written.
    """
    folder = user_project()
    if not (folder / projects.PROJECT_FILE).is_file():
        create(folder)
    if not (folder / MODELS).is_dir():
        with atomic_folder(folder / MODELS) as partial:
            shutil.copytree(REFERENCE, partial, dirs_exist_ok=True)
    return folder
