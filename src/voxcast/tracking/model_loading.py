"""Loading a registered model by its address, for Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project as projects
from voxcast.serving.loaded_model import Model
from voxcast.serving.local_model import LocalModel
from voxcast.serving.machine_file import MACHINES
from voxcast.serving.registry.model_files import ModelFiles, is_address, model_files
from voxcast.tracking import runs

if TYPE_CHECKING:
    from voxcast.serving.loaded_model import LabCharacteristics


def load(
    model: str | os.PathLike[str],
    project: str | os.PathLike[str] | None = None,
    tracking_uri: str | None = None,
    lab_characteristics: LabCharacteristics | None = None,
) -> Model:
    """Load a model; see `voxcast.load` and, for the last, `voxcast.serving.loaded_model.Model`."""
    folder = projects.find(None if project is None else Path(project))
    if is_address(str(model)):
        uri = tracking_uri or os.environ.get(runs.TRACKING_VARIABLE)
        if not uri:
            uri = runs.tracking_uri(projects.require(folder))
        files = model_files(str(model), uri)
    else:
        files = ModelFiles(Path(model))
    machines = None if folder is None else folder / MACHINES
    local = LocalModel.load(files.folder, machines, files.version, files.index_sha256)
    return Model(local, lab_characteristics)
