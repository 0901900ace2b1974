"""The folder of the files that come with an installation, such as ``conf``."""

from __future__ import annotations

from pathlib import Path

import voxcast
from voxcast.errors import ConfigError

PACKAGE = Path(voxcast.__file__).parent
PACKED = "project_files"  # folder of the package in a wheel
GRAPH = "dvc.yaml"


def packaged_folder() -> Path:
    """Return the folder: packed into the wheel, or the repository of an editable installation.

    Raises
    ------
    ConfigError
        If it does not hold them.
    """
    repository = PACKAGE.parents[1]
    for folder in (PACKAGE / PACKED, repository):
        if (folder / GRAPH).is_file() and (folder / "conf").is_dir():
            return folder
    raise ConfigError(
        "the installation holds no project files", PACKAGE, "install the wheel again"
    )
