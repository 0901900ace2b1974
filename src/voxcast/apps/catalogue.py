"""How an application is started: argument list, environment, version, parameters."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from voxcast.records import App, Configuration

# Every library that would otherwise start as many threads as there are cores.
THREAD_VARIABLES = (
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


def choose(apps: Mapping[str, App], name: str) -> App:
    """Return the application ``name``.

    Raises
    ------
    ConfigError
        If there is none; the message lists those there are.
    """
    if name not in apps:
        known = ", ".join(sorted(apps)) or "none"
        raise ConfigError("unknown application", name, f"known are: {known}")
    return apps[name]


def merged_parameters(app: App, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of ``app`` with ``overrides`` put in.

    Raises
    ------
    ConfigError
        If the application has no such parameter.
    """
    unknown = sorted(set(overrides) - set(app.parameters))
    if unknown:
        known = ", ".join(sorted(app.parameters)) or "none"
        where = f"{app.name}.{unknown[0]}"
        raise ConfigError("unknown parameter", where, f"known are: {known}")
    return {**app.parameters, **overrides}


def command(
    app: App, image: Path, out: Path, configuration: Configuration, parameters: Mapping[str, Any]
) -> list[str]:
    """Return the argument list that runs ``app`` on ``image`` and writes into ``out``."""
    arguments = {
        "--image": str(image),
        "--out": str(out),
        "--threads": str(configuration.cpus),
        "--parameters": json.dumps(dict(parameters), sort_keys=True),
    }
    # -P: the folder we are in is not searched for modules, so nothing there shadows a library.
    flat = [part for pair in arguments.items() for part in pair]
    return [sys.executable, "-P", "-m", app.module, *flat]


def environment(configuration: Configuration) -> dict[str, str]:
    """Return the variables that hold the libraries to the threads they were given."""
    return {name: str(configuration.cpus) for name in THREAD_VARIABLES}


def app_version(app: App) -> str:
    """Return the version of ``app`` and of the packages it rests on, e.g. ``1+antspyx0.6.3``.

    Raises
    ------
    RunError
        If one of the packages is not installed.
    """
    parts = []
    for package in app.packages:
        try:
            parts.append(package + importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            then = f"pip install {package}"
            raise RunError(f"needs the package {package}", app.name, then) from None
    return "+".join([app.version, *parts])
