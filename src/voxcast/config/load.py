"""YAML files, the composition of ``conf/`` as DVC does it, and strict loading.

A file that is read alone needs neither Hydra nor OmegaConf, and ``$`` has no meaning in it.
Numbers are read as by OmegaConf: ``1e-7`` is one.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from voxcast.apps.checks import check_app
from voxcast.config.schema import COMPOSE, Config, DeviceConfig, validated
from voxcast.errors import ConfigError, one_line
from voxcast.records import App

CONF_DIR = "conf"
PARAMS_FILE = "params.yaml"


def compose(out: str | Path, overrides: list[str], conf_dir: str | Path = CONF_DIR) -> None:
    """Compose ``conf/`` into ``out``, exactly as DVC does before an experiment.

    Raises
    ------
    ConfigError
        If a file is not YAML, or Hydra refuses a group, an option or a key.
    """
    # DVC's own function, so that `make params` and `dvc exp run` write the same bytes.
    from dvc.utils.hydra import compose_and_dump
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        compose_and_dump(
            out, str(Path(conf_dir).resolve()), None, "config", str(Path.cwd()), overrides
        )
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, RecursionError) as error:
        refused = _composition_error(error, Path(conf_dir), Path(conf_dir))
        if overrides and refused.then is None and refused.where == str(Path(conf_dir)):
            problem = refused.problem.rstrip(".")
            refused = ConfigError(problem, conf_dir, _hint(problem, Path(conf_dir)))
        raise refused from None


def drifts(path: str | Path = PARAMS_FILE, conf_dir: str | Path = CONF_DIR) -> bool:
    """Return whether ``params.yaml`` differs from ``conf/`` as composed."""
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / "params.yaml"
        compose(composed, [], conf_dir)
        return composed.read_bytes() != Path(path).read_bytes()


def _hint(problem: str, conf_dir: Path) -> str:
    """Return the next step after a change, KEY=VALUE, that Hydra refuses."""
    option = re.search(r"Could not find '([^'/]+)/[^']*'", problem)
    names = sorted(p.stem for p in (conf_dir / option[1]).glob("[!_]*.yaml")) if option else []
    if option and names:
        return f"choose {option[1]} from {', '.join(names)}"
    return (
        "a change is KEY=VALUE with a key of params.yaml, or GROUP=NAME of a file "
        "conf/GROUP/NAME.yaml"
    )


def _composition_error(error: Exception, conf_dir: Path, where: Path) -> ConfigError:
    """Return the error of Hydra, OmegaConf or YAML on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        path = Path(error.problem_mark.name)
        if path.is_relative_to(conf_dir.resolve()):
            path = conf_dir / path.relative_to(conf_dir.resolve())
        return yaml_error(error, path)
    if "recursion" in str(error):
        return ConfigError("a file refers to itself, or is nested too deeply", where)
    if str(error).strip():
        return ConfigError(str(error).strip().splitlines()[0], where)
    # OmegaConf's parser of references gives no text.
    then = "write $NAME for ${NAME}, or put the command line in a script"
    return ConfigError("a value has `${` without a valid reference to a key", where, then)


class _Loader(yaml.SafeLoader):
    """Reads ``1e-7`` as a number, a date as text, and refuses a key that occurs twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

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
        Next step for the user if the file is missing.

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
            layers = merged(layers, content)
        elif key == name:
            layers = merged(layers, {name: read_yaml(path.with_name(f"{base}.yaml"))})
        else:
            then = f"start the file with `defaults: [_base@{name}, _self_]`"
            raise ConfigError(f"unknown entry {entry}", f"{path}: defaults", then)
    return layers


def merged(below: Any, above: Any) -> Any:
    """Return a value with another one over it, key by key."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


def changed(content: Any, changes: Iterable[str]) -> Any:
    """Return a value with some keys set by texts ``KEY=VALUE``.

    Raises
    ------
    ConfigError
        If a text has no ``=``, or the value is not YAML.

    Examples
    --------
    >>> changed({"cluster": {"nodes": 2, "cores": 4}}, ["cluster.cores=8"])
    {'cluster': {'nodes': 2, 'cores': 8}}
    """
    for change in changes:
        key, sign, text = change.partition("=")
        try:
            value = yaml.load(text, _Loader)  # noqa: S506, a subclass of SafeLoader
        except yaml.YAMLError as error:
            raise ConfigError(f"not YAML: {one_line(error)}", change) from None
        if not sign:
            raise ConfigError("needs KEY=VALUE", change)
        for name in reversed(key.split(".")):
            value = {name: value}
        content = merged(content, value)
    return content


def load(path: str | Path = PARAMS_FILE, label: str | None = None) -> Config:
    """Read ``params.yaml`` strictly.

    Parameters
    ----------
    label : str, optional
        Stands for the path of a temporary file in errors.

    Raises
    ------
    ConfigError
        Naming file and key, see `voxcast.config.schema.validated`.
    """
    file = label or path
    config = validated(Config, read_yaml(Path(path), f"{COMPOSE} in the project"), file)
    try:
        config.check()
    except ConfigError as error:
        raise ConfigError(f"{error.where}: {error.problem}", file, error.then) from None
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
    otherwise = "" if name in options(Path(folder)) else _as_template(name)
    path, content = _read_one(Path(folder), name, "application", otherwise)
    return _app(path, name, {**content, **values} if values else content)


def _as_template(name: str) -> str:
    """Return the next step where the name of an application is that of a template."""
    from voxcast.apps.new import template_names

    is_template = name in template_names()
    return f"; {name} is a template: `voxcast app new NAME --template {name}`" * is_template


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
    values = {**content, "name": name} if isinstance(content, dict) else content
    app = validated(App, values, path, name)
    check_app(app)
    return app


def load_device(folder: str | Path, name: str) -> DeviceConfig:
    """Read the device ``name`` of a folder such as ``conf/device``; errors as `load_app`."""
    path, content = _read_one(Path(folder), name, "device")
    return validated(DeviceConfig, content, path, name)


def _read_one(folder: Path, name: str, noun: str, otherwise: str = "") -> tuple[Path, Any]:
    check_option(folder, name, noun, otherwise)
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
