"""What ``params.yaml`` holds, as frozen dataclasses, and what makes no sense in it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from voxcast.apps.app_checks import check_app
from voxcast.campaigns.sweeps import Sweep
from voxcast.errors import ConfigError
from voxcast.images.grids import FixedGrid, Sizes
from voxcast.quantities import parse_bytes
from voxcast.records import NOISY_REPEAT, App, Configuration


@dataclass(frozen=True)
class ImagesConfig:
    """Which images: the generated cohort or a user's own by reference."""

    kind: Literal["cohort", "bids"]
    path: str | None
    seed: int
    subjects: int
    label_prefix: str
    voxels: tuple[int, ...]
    axis_voxels: tuple[int, ...]
    fixed_grids: tuple[FixedGrid, ...]

    @property
    def sizes(self) -> Sizes:
        """What decides the grids of a generated cohort."""
        return Sizes(self.voxels, self.axis_voxels, self.fixed_grids)


@dataclass(frozen=True)
class AppConfig:
    """One application, as `voxcast.records.App` without its name."""

    title: str
    version: str
    module: str | None
    argv: tuple[str, ...]
    input: Literal["volume", "none"]
    parameters: dict[str, Any]
    ranges: dict[str, tuple[Any, ...]]
    scaled_down: dict[str, Any]
    packages: tuple[str, ...]
    files: tuple[str, ...]
    devices: tuple[str, ...]
    phases: tuple[str, ...]
    phase_patterns: dict[str, str]
    container: dict[str, str]
    binds: dict[str, str]
    verify_gpu: bool
    expected_startup_s: float
    expected_s_per_mvoxel: float

    def app(self, name: str) -> App:
        """Return the application as the other rooms see it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return App(name=name, **fields)


@dataclass(frozen=True)
class DeviceConfig:
    """The allocations tried on one device, what opens a container there, and what it costs."""

    node_type: str
    cpus: tuple[int, ...]
    gpus: int
    memory: str | None
    container_engine: Literal[
        "none", "apptainer", "singularity", "podman", "docker", "charliecloud"
    ]
    usd_per_core_hour: float
    usd_per_gpu_hour: float


@dataclass(frozen=True)
class CampaignConfig:
    """Which cells to measure and how long it may take; or which recorded runs to take instead."""

    name: str
    seed: int
    budget_s: float | None
    time_limit_s: float
    stall_s: float | None
    parallel: int
    anchors: int
    history: tuple[str, ...]
    sweeps: tuple[Sweep, ...]

    @property
    def stop_after_s(self) -> float | None:
        """Seconds after which no run is begun; None where the cells were drawn to fit."""
        drawn = any(sweep.choose == "within_budget" for sweep in self.sweeps)
        return None if drawn else self.budget_s


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
        return {name: chosen.app(name) for name, chosen in self.app.items()}

    def configurations(self, device: str | None = None) -> list[Configuration]:
        """Return the allocations to try, of all devices or of one; none if it was not chosen."""
        return [
            Configuration(
                device=name,
                cpus=cpus,
                gpus=chosen.gpus,
                mem_limit_bytes=None if chosen.memory is None else parse_bytes(chosen.memory),
                node_type=chosen.node_type,
                container_engine=chosen.container_engine,
            )
            for name, chosen in self.device.items()
            if device in (None, name)
            for cpus in chosen.cpus
        ]


def check(config: Config, where: str) -> None:
    """Raise a `ConfigError` for a value that has the right type and makes no sense."""
    tune, evaluation, campaign = config.tune, config.evaluation, config.campaign
    if config.images.kind == "cohort":
        config.images.sizes.checked()
    for app in config.apps().values():
        try:
            check_app(app)
        except ConfigError as error:
            raise ConfigError(f"{error.where}: {error.what}", where, error.then) from None
    rules = {
        "app: needs at least one application": bool(config.app),
        "device: needs at least one": bool(config.device),
        "campaign.sweeps: needs one, or a history": bool(campaign.sweeps or campaign.history),
        "campaign.parallel: must be at least 1": campaign.parallel >= 1,
        "campaign.time_limit_s: must be above 0": campaign.time_limit_s > 0,
        "campaign.stall_s: must be above 0; null for none": (
            campaign.stall_s is None or campaign.stall_s > 0
        ),
        "campaign.anchors: must not be negative": campaign.anchors >= 0,
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
    for n, sweep in enumerate(campaign.sweeps):
        at = f"campaign.sweeps[{n}]"
        rules |= {
            f"{at}.repeats: must be 1 to {NOISY_REPEAT}": 1 <= sweep.repeats <= NOISY_REPEAT,
            f"{at}.repeat_volumes: must not be negative": (sweep.repeat_volumes or 0) >= 0,
            f"{at}.volumes_offset: must not be negative": sweep.volumes_offset >= 0,
            f"{at}.volumes: must be at least 1": sweep.volumes is None or sweep.volumes >= 1,
            f"{at}.sample: must be at least 1": sweep.sample is None or sweep.sample >= 1,
            f"{at}.choose: within_budget needs campaign.budget_s": (
                sweep.choose == "all" or campaign.budget_s is not None
            ),
            f"{at}.choose: within_budget takes no parameters": (
                sweep.choose == "all" or not (sweep.parameters or sweep.derived or sweep.sample)
            ),
        }
    for rule, kept in rules.items():
        if not kept:
            raise ConfigError(rule, where)
