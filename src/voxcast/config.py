"""The configuration: schema of ``params.yaml``, strict loading, composition, drift.

``conf/`` is the truth, ``params.yaml`` its composed and committed lock file. Stages call `load`
and get frozen dataclasses; nothing else reads YAML. The library below takes plain arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from voxcast.errors import ConfigError, exits_cleanly
from voxcast.quantities import parse_bytes
from voxcast.records import App, Configuration, Scale

PARAMS_FILE = "params.yaml"
CONF_DIR = "conf"


@dataclass(frozen=True)
class ImagesConfig:
    """Which images: the generated cohort or a user's own by reference."""

    kind: typing.Literal["cohort", "bids"]
    path: str | None
    seed: int
    subjects: int
    fine_every: int
    fine_spacing_mm: tuple[float, ...]
    coarse_spacing_mm: tuple[float, ...]


@dataclass(frozen=True)
class AppConfig:
    """One application, as `voxcast.records.App` without its name."""

    title: str
    module: str
    version: str
    packages: tuple[str, ...]
    devices: tuple[str, ...]
    phases: tuple[str, ...]
    parameters: dict[str, Any]
    expected_startup_s: float
    expected_s_per_mvoxel: float


@dataclass(frozen=True)
class DeviceConfig:
    """The allocations tried on one device."""

    node_type: str
    cpus: tuple[int, ...]
    gpus: int
    memory: str | None


@dataclass(frozen=True)
class CampaignConfig:
    """Which cells to measure, and how long it may take."""

    name: str
    volumes: int
    repeat_volumes: int
    repeats: int
    budget_s: float
    time_limit_s: float
    scale: Scale
    seed: int


@dataclass(frozen=True)
class FeaturesConfig:
    """Grids on which voxels are looked at."""

    coarse_points: int
    network_points: int


@dataclass(frozen=True)
class TuneConfig:
    """The search over model families."""

    seed: int
    folds: int
    trials: int
    budget_s: float
    families: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationConfig:
    """Sides, stated risk and the rule of promotion."""

    split_seed: int
    test_fraction: float
    lower_quantile: float
    upper_quantile: float
    max_under_request: float
    uncalibrated_factor: float


@dataclass(frozen=True)
class Config:
    """All of ``params.yaml``."""

    images: ImagesConfig
    app: dict[str, AppConfig]
    device: dict[str, DeviceConfig]
    campaign: CampaignConfig
    features: FeaturesConfig
    tune: TuneConfig
    evaluation: EvaluationConfig

    def apps(self) -> dict[str, App]:
        """Return the chosen applications by name."""
        return {
            name: App(name=name, **{f.name: getattr(app, f.name) for f in dataclasses.fields(app)})
            for name, app in self.app.items()
        }

    def configurations(self, device: str | None = None) -> list[Configuration]:
        """Return the allocations to try, of all devices or of one; none if it was not chosen."""
        return [
            Configuration(
                device=name,
                cpus=cpus,
                gpus=chosen.gpus,
                memory_bytes=None if chosen.memory is None else parse_bytes(chosen.memory),
                node_type=chosen.node_type,
            )
            for name, chosen in self.device.items()
            if device in (None, name)
            for cpus in chosen.cpus
        ]


def load(path: str | Path = PARAMS_FILE) -> Config:
    """Read ``params.yaml`` strictly.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, or a value left ``???``.
    """
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", path, "run `make params` in the project") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", path) from None
    config: Config = _build(Config, raw, str(path))
    _check(config, str(path))
    return config


def _check(config: Config, where: str) -> None:
    """Raise a `ConfigError` for a value that has the right type and makes no sense."""
    tune, evaluation, campaign = config.tune, config.evaluation, config.campaign
    rules = {
        "app: needs at least one application": bool(config.app),
        "device: needs at least one": bool(config.device),
        "campaign.volumes: must be at least 1": campaign.volumes >= 1,
        "campaign.repeats: must be at least 1": campaign.repeats >= 1,
        "features.coarse_points: must be 16 to 256": 16 <= config.features.coarse_points <= 256,
        "features.network_points: must be 8 to 128": 8 <= config.features.network_points <= 128,
        "tune.folds: must be at least 2": tune.folds >= 2,
        "tune.trials: must be at least 1": tune.trials >= 1,
        "tune.families: needs one that does without volumes": bool(set(tune.families) - {"cnn"}),
        "evaluation.test_fraction: must lie between 0 and 1": 0 < evaluation.test_fraction < 1,
        "evaluation.lower_quantile: must lie between 0 and 0.5": (
            0 < evaluation.lower_quantile < 0.5
        ),
        "evaluation.upper_quantile: must lie between 0.5 and 1": (
            0.5 < evaluation.upper_quantile < 1
        ),
        "evaluation.uncalibrated_factor: must be at least 1": evaluation.uncalibrated_factor >= 1,
    }
    for rule, kept in rules.items():
        if not kept:
            raise ConfigError(rule, where)


def _build(kind: Any, value: Any, where: str) -> Any:
    """Return ``value`` as ``kind``, or raise a `ConfigError` that names the key."""
    if value == "???":
        raise ConfigError("needs a value", where, f"set it, e.g. -S {where.split(': ')[-1]}=…")
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _build(next(a for a in typing.get_args(kind) if a is not type(None)), value, where)
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise ConfigError(f"{value!r} is not one of {_names(typing.get_args(kind))}", where)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"needs a list, not {value!r}", where)
        item = typing.get_args(kind)[0]
        return tuple(_build(item, v, f"{where}[{n}]") for n, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"needs a mapping, not {value!r}", where)
        item = typing.get_args(kind)[1]
        return {str(k): _build(item, v, _under(where, k)) for k, v in value.items()}
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
        raise ConfigError("key is missing", _under(where, missing[0]), "run `make params`")
    return kind(**{n: _build(hint, value[n], _under(where, n)) for n, hint in hints.items()})


def _under(where: str, key: object) -> str:
    return f"{where}.{key}" if ": " in where else f"{where}: {key}"


def _names(names: typing.Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


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


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Compose ``params.yaml``, or check that it has not drifted from ``conf/``."""
    parser = argparse.ArgumentParser(prog="python -m voxcast.config", description=main.__doc__)
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, e.g. campaign=tiny")
    parser.add_argument("--check", action="store_true", help="only compare; exit 2 on drift")
    args = parser.parse_args(argv)
    if args.check:
        if drifts():
            raise ConfigError("differs from what conf/ composes to", PARAMS_FILE, "make params")
        print(f"{PARAMS_FILE} is what conf/ composes to", file=sys.stderr)
        return 0
    compose(PARAMS_FILE, args.overrides)
    load(PARAMS_FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
