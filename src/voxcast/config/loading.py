"""Strict loading of ``params.yaml``, and of applications and devices that are not in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import TypeAdapter

from voxcast.apps.app_checks import check_app
from voxcast.config.composition import PARAMS_FILE, compose_file
from voxcast.config.schema import AppByName, Config, DeviceConfig, check
from voxcast.config.validation import validated
from voxcast.errors import ConfigError
from voxcast.records import App

if TYPE_CHECKING:
    from collections.abc import Mapping


def load(path: str | Path = PARAMS_FILE) -> Config:
    """Read ``params.yaml`` strictly.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, a value left ``???`` or
        one that breaks a rule.
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", path, "run `make params` in the project") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", path) from None
    config = validated(TypeAdapter(Config), content, path, when_missing="run `make params`")
    check(config, path)
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
    path, content = _compose_one(Path(folder), name, "application")
    if values and isinstance(content[name], dict):
        content = {name: {**content[name], **values}}
    base = f"start the file with `defaults: [_base@{name}, _self_]`"
    adapter: TypeAdapter[dict[str, App]] = TypeAdapter(AppByName)
    app = validated(adapter, content, path, when_missing=base)[name]
    check_app(app)
    return app


def load_device(folder: str | Path, name: str) -> DeviceConfig:
    """Read the device ``name`` of a folder such as ``conf/device``; errors as `load_app`."""
    path, content = _compose_one(Path(folder), name, "device")
    return validated(TypeAdapter(DeviceConfig), content[name], path, name)


def options(folder: Path) -> list[str]:
    """Return the names of the files of a group, without base files, which start with ``_``."""
    return sorted(path.stem for path in folder.glob("[!_]*.yaml"))


def _compose_one(folder: Path, name: str, noun: str) -> tuple[Path, dict[str, Any]]:
    names = options(folder)
    if name not in names:
        raise ConfigError(f"unknown {noun}", name, f"choose from {', '.join(names) or 'none'}")
    path = folder / f"{name}.yaml"
    content, _ = compose_file(path)
    if list(content) != [name]:
        raise ConfigError(f"must have the single key {name}", path)
    return path, content
