"""Composition of ``conf/`` into one file as DVC does it, and the check of ``params.yaml``.

The second root, ``submit.yaml``, is composed at call time and never written to disk.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from voxcast.config.yaml_files import yaml_error
from voxcast.errors import ConfigError

CONF_DIR = "conf"
PARAMS_FILE = "params.yaml"


def compose(out: str | Path, overrides: list[str], conf_dir: str | Path = CONF_DIR) -> None:
    """Compose ``conf/`` into ``out``, exactly as DVC does before an experiment.

    Raises
    ------
    ConfigError
        If a file is not YAML, or Hydra refuses a group, an option or a key.
    """
    import yaml

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


def compose_file(
    path: Path, overrides: list[str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Compose one file with its defaults.

    Returns
    -------
    content : dict
        Plain Python values by key.
    options : dict
        Name of the chosen file, without ``.yaml``, by group.

    Raises
    ------
    ConfigError
        If the file is missing or not YAML, or Hydra refuses a group, an option or a key.
    """
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not path.is_file():
        raise ConfigError("no such file", path)
    folder = path.parent
    try:
        with initialize_config_dir(str(folder.resolve()), version_base=None):
            composed = hydra_compose(path.stem, overrides or [], return_hydra_config=True)
            options: Any = OmegaConf.to_container(composed.hydra.runtime.choices)
            content: Any = OmegaConf.to_container(composed)
    # Hydra raises a plain ValueError for a group that is set to null.
    except (
        HydraException,
        OmegaConfBaseException,
        ValueError,
        yaml.YAMLError,
        RecursionError,
    ) as error:
        raise _composition_error(error, folder, folder if overrides else path) from None
    groups = {key: value for key, value in content.items() if key != "hydra"}
    return groups, {key: name for key, name in options.items() if key in groups}


def _hint(problem: str, conf_dir: Path) -> str:
    """Return what to do about a change, KEY=VALUE, that Hydra refuses."""
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
    import yaml

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
