"""The project folder of a command: given by the user, or found from the current folder upwards."""

from __future__ import annotations

import os
from pathlib import Path

from voxcast.errors import ConfigError

PROJECT_FILE = "params.yaml"
# Of a project.
CONF_APP, CONF_DEVICE = Path("conf/app"), Path("conf/device")
HISTORY = Path("data/history")  # recorded runs
ENVIRONMENT_VARIABLE = "VOXCAST_PROJECT"


def find(folder: Path | None) -> Path | None:
    """Return the project folder, or None if there is none.

    Parameters
    ----------
    folder : Path or None
        A folder given by the user. If None, ``VOXCAST_PROJECT`` is used, else the current folder
        or the nearest of its parents that is a project.

    Raises
    ------
    ConfigError
        If the folder given by the user or the environment is not a project, or the current folder
        was removed.
    """
    variable = os.environ.get(ENVIRONMENT_VARIABLE)
    if folder is None and variable:
        folder = Path(variable)
    if folder is not None:
        if not (folder / PROJECT_FILE).is_file():
            raise ConfigError(f"not a project: it has no {PROJECT_FILE}", folder)
        return folder.resolve()
    try:
        current = Path.cwd().resolve()
    except FileNotFoundError:
        then = "cd into another"
        raise ConfigError("the current folder no longer exists", None, then) from None
    above = (current, *current.parents)
    return next((path for path in above if (path / PROJECT_FILE).is_file()), None)


def require(folder: Path | None) -> Path:
    """Return the project folder; see `find`.

    Raises
    ------
    ConfigError
        If there is none.
    """
    project = find(folder)
    if project is None:
        raise none_here()
    return project


def none_here() -> ConfigError:
    """Return the error of a command that needs a project and finds none."""
    then = "cd into one, give --project DIR, or make one with `voxcast init`"
    return ConfigError("no project here or above", Path.cwd(), then)
