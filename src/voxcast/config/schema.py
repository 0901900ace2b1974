"""The schema of ``params.yaml``, and the rules of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from voxcast.apps.app_checks import check_app
from voxcast.config.sections import (
    ByName,
    Keys,
    RuleError,
    Section,
    at_least,
    between,
    quantity,
    rule,
)
from voxcast.errors import ConfigError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.grids import FixedGrid, Sizes
from voxcast.images.lab_characteristics import LabCharacteristic, check_lab_characteristics
from voxcast.measure.plan import Sweep
from voxcast.quantities import parse_bytes
from voxcast.records import NOISY_REPEAT, App, Configuration

if TYPE_CHECKING:
    from collections.abc import Collection

NOT_EMPTY = rule(bool, "needs at least one")
ABOVE_0 = rule(lambda value: value > 0, "must be above 0")
ABOVE_0_OR_NULL = rule(lambda value: value is None or value > 0, "must be above 0; null for none")
SWEEP = ByName(
    {
        "sample": Annotated[int | None, at_least(1)],
        "volumes": Annotated[int | None, at_least(1)],
        "volumes_offset": Annotated[int, at_least(0)],
        "repeats": Annotated[
            int, rule(lambda n: 1 <= n <= NOISY_REPEAT, f"must be 1 to {NOISY_REPEAT}")
        ],
        "repeat_volumes": Annotated[int | None, at_least(0)],
    }
)

AppByName = Annotated[dict[str, App], ByName()]


class ImagesConfig(Section):
    """The images: a generated cohort, or the user's by reference."""

    kind: Literal["cohort", "varied_cohort", "bids"]
    path: str | None
    participants: tuple[str, ...]
    seed: int
    subjects: int
    label_prefix: str
    voxels: tuple[int, ...]
    axis_voxels: tuple[int, ...]
    fixed_grids: tuple[Annotated[FixedGrid, Keys()], ...]

    @property
    def generated(self) -> bool:
        """Whether the images are made and not the user's."""
        return self.kind != "bids"

    @property
    def sizes(self) -> Sizes:
        """The settings that determine the grids of a generated cohort."""
        return Sizes(self.voxels, self.axis_voxels, self.fixed_grids)


class DeviceConfig(Section):
    """The allocations to try on one device, and its container engine."""

    node_type: str
    cpus: tuple[int, ...]
    gpus: int
    mem_limit_bytes: Annotated[
        int | None, quantity(parse_bytes, optional=True), Field(alias="memory")
    ]
    container_engine: Literal[
        "none", "apptainer", "singularity", "podman", "docker", "charliecloud"
    ]


class CampaignConfig(Section):
    """The cells to measure and the time budget, or the recorded runs to use instead."""

    name: str
    seed: int
    budget_s: float | None
    time_limit_s: Annotated[float, ABOVE_0]
    stall_s: Annotated[float | None, ABOVE_0_OR_NULL]
    parallel: Annotated[int, at_least(1)]
    anchors: Annotated[int, at_least(0)]
    metronome: bool
    history: tuple[str, ...]
    sweeps: Annotated[tuple[Sweep, ...], SWEEP]

    @model_validator(mode="after")
    def _check(self) -> CampaignConfig:
        if not self.sweeps and not self.history:
            raise RuleError("needs one, or a history", "sweeps")
        for sweep in self.sweeps:
            if sweep.choose == "within_budget":
                key = f"sweeps.{sweep.name}.choose"
                if self.budget_s is None:
                    raise RuleError("within_budget needs campaign.budget_s", key)
                if sweep.parameters or sweep.sample:
                    raise RuleError("within_budget takes no parameters", key)
        return self

    @property
    def stop_after_s(self) -> float | None:
        """Seconds after which no run is started; None where the cells were drawn to fit."""
        drawn = any(sweep.choose == "within_budget" for sweep in self.sweeps)
        return None if drawn else self.budget_s


class FeaturesConfig(Section):
    """The grids of voxels and their limit, characteristics, the recorded batches that train."""

    coarse_points: Annotated[int, rule(lambda n: 16 <= n <= 256, "must be 16 to 256")]
    network_points: Annotated[
        int, rule(lambda n: 8 <= n <= 128 and n % 8 == 0, "must be a multiple of 8, to 128")
    ]
    max_voxels: Annotated[int, at_least(1)]
    characteristics: Annotated[dict[str, LabCharacteristic], ByName()]
    history: tuple[str, ...]


class TuneConfig(Section):
    """The search over model families."""

    seed: int
    folds: Annotated[int, at_least(2)]
    trials: Annotated[int, at_least(1)]
    budget_s: float
    families: Annotated[
        tuple[str, ...],
        rule(lambda names: bool({*names} - {"cnn"}), "needs a family that works without volumes"),
    ]
    # Parameters by application and family that are not searched; `voxcast tune` writes them.
    fixed: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)


class EvaluationConfig(Section):
    """The split by subject, the quantiles of the bounds and the promotion rule."""

    split_seed: int
    test_fraction: Annotated[float, between(0, 1)]
    lower_quantile: Annotated[float, between(0, 0.5)]
    upper_quantile: Annotated[float, between(0.5, 1)]
    max_under_request: float
    uncalibrated_factor: Annotated[float, at_least(1)]


class Config(Section):
    """All of ``params.yaml``."""

    images: ImagesConfig
    apps: Annotated[AppByName, rule(bool, "needs at least one application"), Field(alias="app")]
    devices: Annotated[dict[str, DeviceConfig], NOT_EMPTY, Field(alias="device")]
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


def check(config: Config, file: object) -> None:
    """Check the applications and the grids by the rules of the library.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    try:
        if config.images.generated:
            config.images.sizes.checked()
        check_lab_characteristics(config.features.characteristics)
        for app in config.apps.values():
            check_app(app)
            _check_declared(app, (*CHARACTERISTICS, *config.features.characteristics))
    except ConfigError as error:
        raise ConfigError(f"{error.where}: {error.problem}", file, error.then) from None


def _check_declared(app: App, names: Collection[str]) -> None:
    for name in app.characteristics or ():
        if name not in names:
            then = "see `voxcast inspect --list`, or declare it in features.characteristics"
            raise ConfigError(
                "unknown characteristic", f"app.{app.name}.characteristics: {name}", then
            )
