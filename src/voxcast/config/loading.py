"""Strict loading of ``params.yaml``, and of applications and devices that are not in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from voxcast.apps.checks import check_app
from voxcast.config.composition import CONF_DIR, PARAMS_FILE
from voxcast.config.schema import AppByName, Config, DeviceConfig, check
from voxcast.config.validation import validated
from voxcast.config.yaml_files import read_with_bases, read_yaml
from voxcast.errors import ConfigError
from voxcast.records import App

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMPOSE = "run `python -m voxcast.config`"  # `make params` in the repository


def load(path: str | Path = PARAMS_FILE, label: str | None = None) -> Config:
    """Read ``params.yaml`` strictly.

    Parameters
    ----------
    label : str, optional
        Stands for the path in errors, where that is of a temporary file.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, a value left ``???`` or
        one that breaks a rule.
    """
    path = Path(path)
    content = read_yaml(path, f"{COMPOSE} in the project")
    where = label or path
    _check_app_names(content, where)
    config = validated(TypeAdapter(Config), content, where, when_missing=_when_missing)
    check(config, where)
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
        If there is no such application, or its file is invalid.
    """
    path, content = _read_one(Path(folder), name, "application")
    if values and isinstance(content[name], dict):
        content = {name: {**content[name], **values}}
    adapter: TypeAdapter[dict[str, App]] = TypeAdapter(AppByName)
    app = validated(adapter, content, path, when_missing=lambda _: _base_of(name))[name]
    check_app(app)
    return app


def app_of(conf_app: Path, name: str, values: dict[str, Any]) -> App:
    """Return an application with the ``values`` of its file, checked, before the file is written.

    Parameters
    ----------
    conf_app : Path
        The folder ``conf/app``, which holds the values of all other keys.
    """
    base = read_yaml(conf_app / "_base.yaml", "run `voxcast init` first")
    adapter: TypeAdapter[dict[str, App]] = TypeAdapter(AppByName)
    app = validated(adapter, {name: {**base, **values}}, conf_app / f"{name}.yaml")[name]
    check_app(app)
    return app


def load_device(folder: str | Path, name: str) -> DeviceConfig:
    """Read the device ``name`` of a folder such as ``conf/device``; errors as `load_app`."""
    path, content = _read_one(Path(folder), name, "device")
    return validated(TypeAdapter(DeviceConfig), content[name], path, name)


def options(folder: Path) -> list[str]:
    """Return the names of the files of a group, without base files, which start with ``_``."""
    return sorted(path.stem for path in folder.glob("[!_]*.yaml"))


def _check_app_names(content: Any, path: object) -> None:
    apps = content.get("app") if isinstance(content, dict) else None
    for name in apps if isinstance(apps, dict) else ():
        if "." in str(name):
            then = f"rename the file, its key and _base@{name} to {str(name).replace('.', '_')}"
            where = f"{path}: app.{name}"
            raise ConfigError("the name of an application cannot contain a dot", where, then)


def _when_missing(path: Sequence[int | str]) -> str:
    if path[0] == "app" and len(path) > 2:
        return f"{COMPOSE}; if that does not help, {_base_of(str(path[1]))}"
    if path[0] == "campaign":
        base = f"_sweep@sweeps.{path[2]}" if len(path) > 2 else "_base"
        return f"{COMPOSE}; if that does not help, add {base} to defaults of the campaign"
    return COMPOSE


def _base_of(app: str) -> str:
    return f"start {CONF_DIR}/app/{app}.yaml with `defaults: [_base@{app}, _self_]`"


def _read_one(folder: Path, name: str, noun: str) -> tuple[Path, dict[str, Any]]:
    names = options(folder)
    if name not in names:
        raise ConfigError(f"unknown {noun}", name, f"choose from {', '.join(names) or 'none'}")
    path = folder / f"{name}.yaml"
    content = read_with_bases(path, name)
    if list(content) != [name]:
        raise ConfigError(f"must have the single key {name}", path)
    return path, content
