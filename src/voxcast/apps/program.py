"""The program or container of an application on this machine, checked before anything is run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.apps.launch import check_container
from voxcast.errors import ConfigError, RunError

if TYPE_CHECKING:
    from voxcast.records import App, Configuration


def check_startable(app: App, configuration: Configuration) -> None:
    """Check that ``app`` can be started and measured here.

    Raises
    ------
    ConfigError
        If it needs a container engine and none is chosen, or one that cannot be measured.
    RunError
        If its program, or its container, is missing.
    """
    if app.module is None and not app.container:
        check_program(app.argv[0])
    for program in app.programs:
        check_program(program)
    if app.container and configuration.container_engine == "none":
        then = f"set container_engine in conf/device/{configuration.device}.yaml, e.g. apptainer"
        raise ConfigError("needs a container engine, and none is chosen", app.name, then)
    check_container(app, configuration)


def check_program(program: str) -> None:
    """Check that a program can be started; one that a parameter decides is not looked at.

    Raises
    ------
    RunError
        If there is no such program, or it is not executable.
    """
    if "{" in program or shutil.which(program) is not None:
        return
    path = Path(program)
    if "/" not in program:
        raise RunError("is not on PATH", program, "install it, or name it by its path")
    if path.is_dir():
        raise RunError("is a folder, not a program", program)
    if path.exists():
        raise RunError("is not executable", program, f"run `chmod +x {program}`")
    raise RunError("no such program", program)
