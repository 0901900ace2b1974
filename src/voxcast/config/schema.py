"""The sections of ``params.yaml`` as dataclasses, and the rules of their values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from voxcast.apps.checks import check_app
from voxcast.config.validation import (
    Key,
    Place,
    Rules,
    at_least,
    between,
    mapping,
    quantity,
    section,
)
from voxcast.errors import ConfigError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.lab_characteristics import LabCharacteristic, check_lab_characteristics
from voxcast.measure.plan import Sweep
from voxcast.quantities import parse_bytes
from voxcast.records import NOISY_REPEAT, App, Configuration
from voxcast_apps.heads.grids import FixedGrid, Sizes


@dataclass(frozen=True)
class ImagesConfig:
    """The images: a generated cohort, or the user's by reference."""

    kind: Literal["cohort", "varied_cohort", "bids"]
    path: str | None
    participants: tuple[str, ...]
    seed: int
    subjects: int
    label_prefix: str
    voxels: tuple[int, ...]
    axis_voxels: tuple[int, ...]
    fixed_grids: tuple[FixedGrid, ...]

    @property
    def generated(self) -> bool:
        """Whether the images are made and not the user's."""
        return self.kind != "bids"

    @property
    def sizes(self) -> Sizes:
        """The settings that determine the grids of a generated cohort."""
        return Sizes(self.voxels, self.axis_voxels, self.fixed_grids)


@dataclass(frozen=True)
class DeviceConfig:
    """The allocations to try on one device, and its container engine."""

    node_type: str
    cpus: tuple[int, ...]
    gpus: int
    mem_limit_bytes: int | None
    container_engine: Literal["none", "apptainer", "singularity", "charliecloud"]


@dataclass(frozen=True)
class CampaignConfig:
    """The cells to measure and the time budget, or the recorded runs to use instead."""

    name: str
    seed: int
    budget_s: float | None
    time_limit_s: float
    stall_s: float | None
    parallel: int
    anchors: int
    metronome: bool
    history: tuple[str, ...]
    sweeps: tuple[Sweep, ...]


@dataclass(frozen=True)
class FeaturesConfig:
    """The grids of voxels and their limit, characteristics, the recorded campaigns that train."""

    coarse_points: int
    network_points: int
    max_voxels: int
    characteristics: dict[str, LabCharacteristic]
    history: tuple[str, ...]


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
    """The split by subject, the quantiles of the bounds and the promotion rule."""

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
    apps: dict[str, App]
    devices: dict[str, DeviceConfig]
    campaign: CampaignConfig
    features: FeaturesConfig
    tune: TuneConfig
    evaluation: EvaluationConfig

    def configurations(self, device: str | None = None) -> list[Configuration]:
        """Return the allocations to try, of all devices or of one; none if not configured."""
        return [
            Configuration(
                device=name,
                cpus=cpus,
                gpus=chosen.gpus,
                mem_limit_bytes=chosen.mem_limit_bytes,
                node_type=chosen.node_type,
                container_engine=chosen.container_engine,
            )
            for name, chosen in self.devices.items()
            if device in (None, name)
            for cpus in chosen.cpus
        ]

    def definition(self) -> dict[str, Any]:
        """Return the sections that determine the measurements, by their keys in the file."""
        devices = {name: asdict(device) for name, device in self.devices.items()}
        for device in devices.values():
            device["memory"] = device.pop("mem_limit_bytes")
        apps = {name: asdict(app) for name, app in self.apps.items()}
        for app in apps.values():
            if not app["split"]:  # an optional key that is not set
                del app["split"]
        sections = {"images": asdict(self.images), "campaign": asdict(self.campaign)}
        return {**sections, "app": apps, "device": devices}


ABOVE_0 = Key(holds=lambda value: value > 0, rule="must be above 0")
ABOVE_0_OR_NULL = Key(
    holds=lambda value: value is None or value > 0, rule="must be above 0; null for none"
)
APP_HINT = "start conf/app/{0}.yaml with `defaults: [_base@{0}, _self_]`"


def _sweeps(content: Any, place: Place) -> tuple[Sweep, ...]:
    sweeps = []
    for name, entry in mapping(content, place).items():
        base = f"add _sweep@sweeps.{name} to defaults of the campaign"
        below = with_base(place.at(name), base)
        sweeps.append(section(Sweep, entry, below, RULES, name=name))
    return tuple(sweeps)


def _apps(content: Any, place: Place) -> dict[str, App]:
    apps = {}
    for name, entry in mapping(content, place).items():
        below = place.at(name)
        if "." in str(name):
            new = str(name).replace(".", "_")
            then = f"rename the file, its key and _base@{name} to {new}"
            raise below.error("the name of an application cannot contain a dot", then)
        apps[name] = section(App, entry, with_base(below, APP_HINT.format(name)), name=name)
    return apps


def _campaign(content: Any, place: Place) -> CampaignConfig:
    below = with_base(place, "add _base to defaults of the campaign")
    campaign = section(CampaignConfig, content, below, RULES)
    if not campaign.sweeps and not campaign.history:
        raise place.at("sweeps").error("needs one, or a history")
    return campaign


def with_base(place: Place, then: str) -> Place:
    """Return a place with the further step for a file without its base file."""
    return Place(place.file, place.key, f"{place.when_missing}; if that does not help, {then}")


RULES: Rules = {
    Config: {
        "apps": Key("app", _apps, holds=bool, rule="needs at least one application"),
        "devices": Key("device", holds=bool, rule="needs at least one"),
        "campaign": Key(read=_campaign),
    },
    DeviceConfig: {"mem_limit_bytes": Key("memory", quantity(parse_bytes, optional=True))},
    CampaignConfig: {
        "time_limit_s": ABOVE_0,
        "stall_s": ABOVE_0_OR_NULL,
        "parallel": at_least(1),
        "anchors": at_least(0),
        "sweeps": Key(read=_sweeps),
    },
    Sweep: {
        "sample": at_least(1),
        "volumes": at_least(1),
        "volumes_offset": at_least(0),
        "repeats": Key(
            holds=lambda n: 1 <= n <= NOISY_REPEAT, rule=f"must be 1 to {NOISY_REPEAT}"
        ),
        "repeat_volumes": at_least(0),
    },
    FeaturesConfig: {
        "coarse_points": Key(holds=lambda n: 16 <= n <= 256, rule="must be 16 to 256"),
        "network_points": Key(
            holds=lambda n: 8 <= n <= 128 and n % 8 == 0, rule="must be a multiple of 8, to 128"
        ),
        "max_voxels": at_least(1),
    },
    TuneConfig: {
        "folds": at_least(2),
        "trials": at_least(1),
        "families": Key(
            holds=lambda names: bool({*names} - {"cnn"}),
            rule="needs a family that works without volumes",
        ),
    },
    EvaluationConfig: {
        "test_fraction": between(0, 1),
        "lower_quantile": between(0, 0.5),
        "upper_quantile": between(0.5, 1),
        "uncalibrated_factor": at_least(1),
    },
}


def check(config: Config, file: object) -> None:
    """Check the applications and the grids by the rules of the library.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    declared = config.features.characteristics
    try:
        if config.images.generated:
            config.images.sizes.checked()
        check_lab_characteristics(declared)
        for app in config.apps.values():
            check_app(app)
            _check_declared(app, (*CHARACTERISTICS, *declared))
    except ConfigError as error:
        raise ConfigError(f"{error.where}: {error.problem}", file, error.then) from None


def _check_declared(app: App, names: Collection[str]) -> None:
    for name in app.characteristics or ():
        if name not in names:
            then = "see `voxcast inspect --list`, or declare it in features.characteristics"
            where = f"app.{app.name}.characteristics: {name}"
            raise ConfigError("unknown characteristic", where, then)
