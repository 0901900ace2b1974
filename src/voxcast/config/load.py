"""Strict loading of ``params.yaml``, and of applications and devices that are not in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from voxcast.apps.checks import check_app
from voxcast.config.compose import PARAMS_FILE, read_with_bases, read_yaml
from voxcast.config.schema import APP_HINT, RULES, Config, DeviceConfig, check
from voxcast.config.validation import Place, section
from voxcast.errors import ConfigError
from voxcast.images.characteristics import Characteristic
from voxcast.images.lab_characteristics import load_lab_characteristics
from voxcast.records import App

COMPOSE = "run `python -m voxcast.config`"  # `make params` in the repository


def load(path: str | Path = PARAMS_FILE, label: str | None = None) -> Config:
    """Read ``params.yaml`` strictly.

    Parameters
    ----------
    label : str, optional
        Stands for the path of a temporary file in errors.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, a value left ``???`` or
        one that breaks a rule.
    """
    place = Place(label or path, when_missing=COMPOSE)
    content = read_yaml(Path(path), f"{COMPOSE} in the project")
    config = section(Config, content, place, RULES)
    check(config, place.file)
    return config


def load_app(folder: str | Path, name: str, values: Mapping[str, Any] | None = None) -> App:
    """Read the application ``name`` of a folder such as ``conf/app``, configured or not.

    Parameters
    ----------
    values : mapping, optional
        Replacements for values of the file, such as those it leaves open.

    Raises
    ------
    ConfigError
        If the application is unknown, or its file is invalid.
    """
    path, content = _read_one(Path(folder), name, "application")
    return _app(path, name, {**content, **values} if values else content)


def app_of(folder: Path, name: str, values: dict[str, Any]) -> App:
    """Return an application with the ``values`` of its file, checked, before the file is written.

    Parameters
    ----------
    folder : Path
        ``conf/app``, which holds the values of all other keys.
    """
    base = read_yaml(folder / "_base.yaml", "run `voxcast init` first")
    return _app(folder / f"{name}.yaml", name, {**base, **values})


def _app(path: Path, name: str, content: Any) -> App:
    place = Place(path, name, APP_HINT.format(name))
    app = section(App, content, place, name=name)
    check_app(app)
    return app


def load_device(folder: str | Path, name: str) -> DeviceConfig:
    """Read the device ``name`` of a folder such as ``conf/device``; errors as `load_app`."""
    path, content = _read_one(Path(folder), name, "device")
    return section(DeviceConfig, content, Place(path, name), RULES)


def _read_one(folder: Path, name: str, noun: str) -> tuple[Path, Any]:
    check_option(folder, name, noun)
    path = folder / f"{name}.yaml"
    content = read_with_bases(path, name)
    if list(content) != [name]:
        raise ConfigError(f"must have the single key {name}", path)
    return path, content[name]


def options(folder: Path) -> list[str]:
    """Return the names of the files of a group, without base files, which start with ``_``."""
    return sorted(path.stem for path in folder.glob("[!_]*.yaml"))


def check_option(folder: Path, name: str, noun: str, otherwise: str = "") -> None:
    """Check that a group has the file ``name``.

    Raises
    ------
    ConfigError
        If it has not; the message lists its files and goes on with ``otherwise``.
    """
    names = options(folder)
    if name not in names:
        then = f"choose from {', '.join(names) or 'none'}{otherwise}"
        raise ConfigError(f"unknown {noun}", name, then)


def project_characteristics(
    folder: Path, needed: Collection[str] | None = None
) -> dict[str, Characteristic]:
    """Import the functions of the characteristics that a project declares.

    Parameters
    ----------
    folder : Path
        The project.
    needed : collection of str, optional
        Import only these.

    Raises
    ------
    ConfigError
        If the configuration cannot be used, or a function cannot be imported.
    """
    declared = load(folder / PARAMS_FILE).features.characteristics
    wanted = {n: entry for n, entry in declared.items() if needed is None or n in needed}
    return load_lab_characteristics(wanted, folder)
