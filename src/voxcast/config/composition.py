"""``conf/`` composed into one file, as DVC does it, and whether ``params.yaml`` still is that."""

from __future__ import annotations

import tempfile
from pathlib import Path

from voxcast.config.loading import PARAMS_FILE
from voxcast.errors import ConfigError

CONF_DIR = "conf"


def compose(out: str | Path, overrides: list[str], conf_dir: str | Path = CONF_DIR) -> None:
    """Compose ``conf/`` into ``out``, exactly as DVC does before an experiment.

    Raises
    ------
    ConfigError
        If Hydra does not know a group, an option or a key.
    """
    # DVC's own function, so that `make params` and `dvc exp run` write the same bytes.
    from dvc.utils.hydra import compose_and_dump
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        compose_and_dump(
            out, str(Path(conf_dir).resolve()), None, "config", str(Path.cwd()), overrides
        )
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error).splitlines()[0], conf_dir) from None


def drifts(path: str | Path = PARAMS_FILE, conf_dir: str | Path = CONF_DIR) -> bool:
    """Tell whether ``params.yaml`` is no longer what ``conf/`` composes to."""
    with tempfile.TemporaryDirectory() as folder:
        composed = Path(folder) / "params.yaml"
        compose(composed, [], conf_dir)
        return composed.read_bytes() != Path(path).read_bytes()
