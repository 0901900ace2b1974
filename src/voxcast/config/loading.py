"""Strict loading: unknown and missing keys, wrong types and open values name file and key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from voxcast.apps.app_checks import check_app
from voxcast.config.schema import AppConfig, Config, DeviceConfig, check
from voxcast.errors import ConfigError
from voxcast.records import App

PARAMS_FILE = "params.yaml"


def load(path: str | Path = PARAMS_FILE) -> Config:
    """Read ``params.yaml`` strictly.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, or a value left ``???``.
    """
    raw = _read(Path(path), "run `make params` in the project")
    config: Config = build(Config, raw, str(path))
    check(config, str(path))
    return config


def load_app(folder: str | Path, name: str, given: Mapping[str, Any] | None = None) -> App:
    """Read the application ``name`` of a folder such as ``conf/app``, chosen or not.

    Parameters
    ----------
    given : mapping, optional
        Values in the place of the file's, for what it leaves open.

    Raises
    ------
    ConfigError
        If there is none, naming those there are, or its file is wrong.
    """
    chosen: AppConfig = _load_one(AppConfig, Path(folder), name, "application", given)
    app = chosen.app(name)
    check_app(app)
    return app


def load_device(folder: str | Path, name: str) -> DeviceConfig:
    """Read the device ``name`` of a folder such as ``conf/device``; errors as `load_app`."""
    chosen: DeviceConfig = _load_one(DeviceConfig, Path(folder), name, "device")
    return chosen


def _load_one(
    kind: type, folder: Path, name: str, noun: str, given: Mapping[str, Any] | None = None
) -> Any:
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise ConfigError(f"unknown {noun}", name, f"known are: {', '.join(known) or 'none'}")
    path = folder / f"{name}.yaml"
    raw = _read(path, None)
    if not isinstance(raw, dict) or list(raw) != [name]:
        raise ConfigError(f"needs the one key {name}", path)
    value = {**raw[name], **given} if given and isinstance(raw[name], dict) else raw[name]
    return build(kind, value, f"{path}: {name}")


def _read(path: Path, then: str | None) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", path, then) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", path) from None


def build(kind: Any, value: Any, where: str) -> Any:
    """Return ``value`` as ``kind``, a frozen dataclass for instance.

    Parameters
    ----------
    where : str
        ``FILE`` or ``FILE: key.of.value``, for errors.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    if value == "???":
        raise ConfigError("needs a value", where, f"set it, e.g. -S {where.split(': ')[-1]}=…")
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return build(next(a for a in typing.get_args(kind) if a is not type(None)), value, where)
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise ConfigError(f"{value!r} is not one of {_names(typing.get_args(kind))}", where)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"needs a list, not {value!r}", where)
        item = typing.get_args(kind)[0]
        return tuple(build(item, v, f"{where}[{n}]") for n, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"needs a mapping, not {value!r}", where)
        item = typing.get_args(kind)[1]
        return {str(k): build(item, v, _under(where, k)) for k, v in value.items()}
    if kind is Any:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"needs {kind.__name__}, not {value!r}", where)
    return value


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(f"needs a mapping, not {value!r}", where)
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ConfigError(f"unknown key, known are {_names(hints)}", _under(where, unknown[0]))
    missing = [name for name in hints if name not in value]
    if missing:
        then = "run `make params`" if PARAMS_FILE in where else None
        raise ConfigError("key is missing", _under(where, missing[0]), then)
    return kind(**{n: build(hint, value[n], _under(where, n)) for n, hint in hints.items()})


def _under(where: str, key: object) -> str:
    return f"{where}.{key}" if ": " in where else f"{where}: {key}"


def _names(names: typing.Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))
