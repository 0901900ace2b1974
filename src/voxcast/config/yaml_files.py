"""YAML files as plain Python values, one file by itself or merged with its base files.

A file that is read alone needs neither Hydra nor OmegaConf, and ``$`` has no meaning in it.
Numbers are those of OmegaConf: ``1e-7`` is one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from voxcast.errors import ConfigError, one_line


class _Loader(yaml.SafeLoader):
    """Reads ``1e-7`` as a number and refuses a key that occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in keys:
            if keys.count(name) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"found duplicate key {name}", node.start_mark
                )
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path, when_missing: str | None = None) -> Any:
    """Return the content of a file.

    Parameters
    ----------
    when_missing : str, optional
        Next step for the user if there is no such file.

    Raises
    ------
    ConfigError
        If the file is missing or not YAML, with the line.
    """
    try:
        return yaml.load(path.read_bytes(), _Loader)  # noqa: S506, a subclass of SafeLoader
    except FileNotFoundError:
        raise ConfigError("no such file", path, when_missing) from None
    except yaml.YAMLError as error:
        raise yaml_error(error, path) from None
    except ValueError as error:  # a date that does not exist
        raise ConfigError(f"not YAML: {one_line(error)}", path) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", path) from None


def yaml_error(error: yaml.YAMLError, path: Path) -> ConfigError:
    """Return the error of a parser on one line, with the line of the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or one_line(error)
    return ConfigError(f"not YAML: {problem}", f"{path}, line {mark.line + 1}" if mark else path)


def read_with_bases(path: Path, name: str) -> dict[Any, Any]:
    """Return the content of a file that holds the key ``name``, merged over its base files.

    Raises
    ------
    ConfigError
        If a file cannot be read, or ``defaults`` names anything but ``BASE@name`` and ``_self_``.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"must have the single key {name}", path)
    defaults = content.pop("defaults", ["_self_"])
    entries = defaults if isinstance(defaults, list) else [defaults]
    layers: dict[Any, Any] = {}
    for entry in entries if "_self_" in entries else [*entries, "_self_"]:
        base, _, key = str(entry).partition("@")
        if entry == "_self_":
            layers = _merged(layers, content)
        elif key == name:
            layers = _merged(layers, {name: read_yaml(path.with_name(f"{base}.yaml"))})
        else:
            then = f"start the file with `defaults: [_base@{name}, _self_]`"
            raise ConfigError(f"unknown entry {entry}", f"{path}: defaults", then)
    return layers


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
