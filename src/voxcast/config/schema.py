"""The schema of ``params.yaml``: dataclasses that pydantic checks strictly.

A key whose field has a default may be left out. An error names file and key in one line.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    TypeAdapter,
    ValidationError,
)

from voxcast.apps.checks import check_app
from voxcast.errors import ConfigError, one_line
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.sources import ImageChoice
from voxcast.measure.plan import Sweep
from voxcast.quantities import parse_bytes
from voxcast.records import NOISY_REPEAT, App, Configuration
from voxcast.refusals import brief, reason_of

T = TypeVar("T")
UNSET = "???"  # Hydra's mark for a value that must be set
SIMILAR = 0.75  # the smallest ratio of difflib for a suggestion
UNKNOWN = "unexpected_keyword_argument"  # pydantic's type of the error of an unknown key
COMPOSE = "run `python -m voxcast.config`"  # `make params` in the repository
_STRICT = ConfigDict(strict=True, extra="forbid")


def validated(kind: type[T], content: Any, file: object, key: str = "") -> T:
    """Return the value of a key as a record; without ``key`` that of the whole file.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, a value left ``???`` or
        one that breaks a rule.
    """
    try:
        if open_keys := _unset(content, key):
            raise ConfigError(
                "needs a value", f"{file}: {open_keys[0]}", "set it, or give -S KEY=…"
            )
        # As JSON, since strictly a list of YAML is no tuple of Python.
        text = json.dumps([content])
    except (TypeError, ValueError, RecursionError) as strange:
        problem = f"has a value that JSON has not: {one_line(strange)}"
        raise ConfigError(problem, file) from None
    try:
        (record,) = _adapter(kind).validate_json(text)  # type: ignore[arg-type]
    except ValidationError as refused:
        errors: list[Any] = refused.errors(include_url=False)
    else:
        return record  # type: ignore[no-any-return]
    error = min(errors, key=lambda entry: entry["type"] != UNKNOWN)  # a typo hides a key
    where = _path(key, error["loc"][1:])
    problem, then = reason_of(error).replace("an object", "a mapping"), None
    if error["type"] == UNKNOWN:
        problem, then = _of_unknown_key(content, errors, error["loc"])
    elif error["type"] == "missing":
        problem, then = "key is missing", _with_base(where)
    raise ConfigError(problem, f"{file}: {where}" if where else file, then)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(tuple[kind], config=_STRICT)


def _path(key: str, parts: tuple[int | str, ...]) -> str:
    """Return a key in dots, with the positions in lists in brackets."""
    named = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return "".join([key, *named]).removeprefix(".")


def _unset(value: Any, key: str) -> list[str]:
    """Return the keys below ``key`` whose value is left open."""
    if not isinstance(value, dict | list):
        return [key] if value == UNSET else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [below for name, child in items for below in _unset(child, _path(key, (name,)))]


def _of_unknown_key(
    content: Any, errors: list[Any], loc: tuple[Any, ...]
) -> tuple[str, str | None]:
    """Return the keys that are beside an unknown one, or missing, and the most similar of them."""
    *above, name = loc[1:]
    for part in above:
        content = content[part]
    beside = [error for error in errors if error["loc"][:-1] == loc[:-1]]
    unknown = {error["loc"][-1] for error in beside if error["type"] == UNKNOWN}
    missing = {error["loc"][-1] for error in beside if error["type"] == "missing"}
    names = sorted(({*content} - unknown) | missing)
    similar = difflib.get_close_matches(str(name), names, 1, SIMILAR)
    then = f"did you mean {similar[0]}?" if similar else None
    return f"unknown key, choose from {', '.join(names)}", then


def _with_base(where: str) -> str | None:
    """Return the next step where a key of ``params.yaml`` is missing."""
    match where.split("."):
        case ["campaign", "sweeps", name, _]:
            return f"{COMPOSE}, or add _sweep@sweeps.{name} to defaults of the campaign"
        case ["campaign", *_]:
            return f"{COMPOSE}, or add _base to defaults of the campaign"
        case ["images" | "app" | "device" | "features" | "tune" | "evaluation", *_]:
            return COMPOSE
    return None


def quantity(parse: Callable[[str], float]) -> BeforeValidator:
    """Return a reader of numbers with a unit; None is left as it is."""

    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, str):
            raise ValueError(f"must be a number and a unit as one text, not {brief(value)}")
        try:
            return parse(value)
        except ConfigError as error:
            raise ValueError(one_line(error)) from None

    return BeforeValidator(read)


def named(record: type[Any], form: type[Any]) -> GetPydanticSchema:
    """Return what reads the entries of a mapping as ``form``, and names the records by key."""

    def by_key(entries: dict[str, Any]) -> dict[str, Any]:
        return {name: record(**{**vars(entry), "name": name}) for name, entry in entries.items()}

    kind = Annotated[dict[str, form], AfterValidator(by_key)]  # type: ignore[valid-type]
    return GetPydanticSchema(lambda _, handler: handler(kind))


def _without_dots(apps: dict[str, App]) -> dict[str, App]:
    for name in apps:
        if "." in name:
            new = name.replace(".", "_")
            raise ValueError(f"the name of an application cannot contain a dot: {name}; use {new}")
    return apps


AtLeast0 = Annotated[int, Field(ge=0)]
AtLeast1 = Annotated[int, Field(ge=1)]
Above0 = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class DeviceConfig:
    """The allocations to try on one device, and its container engine."""

    node_type: str
    cpus: tuple[int, ...]
    gpus: int
    mem_limit_bytes: Annotated[int | None, Field(alias="memory"), quantity(parse_bytes)]
    container_engine: Literal["none", "apptainer", "singularity", "charliecloud"]


@dataclass(frozen=True, kw_only=True)
class _App(App):
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class _Sweep(Sweep):
    """A sweep with the limits of its numbers."""

    name: str = ""
    sample: AtLeast1 | None
    volumes: AtLeast1 | None
    volumes_offset: AtLeast0
    repeats: Annotated[int, Field(ge=1, le=NOISY_REPEAT // 2)]
    first_repeat: Annotated[int, Field(ge=0, le=NOISY_REPEAT // 2)]
    repeat_volumes: AtLeast0 | None


@dataclass(frozen=True)
class CampaignConfig:
    """The cells to measure and the time budget, or the recorded runs to use instead."""

    name: str
    seed: int
    budget_s: float | None
    time_limit_s: Above0
    stall_s: Above0 | None
    parallel: AtLeast1
    anchors: AtLeast0
    metronome: bool
    history: tuple[str, ...]
    sweeps: Annotated[dict[str, Sweep], named(Sweep, _Sweep)]

    def __post_init__(self) -> None:
        """Refuse a campaign without runs."""
        if not self.sweeps and not self.history:
            raise ValueError("needs sweeps, or a history")


@dataclass(frozen=True)
class FeaturesConfig:
    """The grids of voxels and their limit, and the recorded campaigns that train."""

    coarse_points: Annotated[int, Field(ge=16, le=256)]
    network_points: Annotated[int, Field(ge=8, le=128, multiple_of=8)]
    max_voxels: AtLeast1
    history: tuple[str, ...]


def _with_point_model(families: tuple[str, ...]) -> tuple[str, ...]:
    if not {*families} - {"cnn"}:
        raise ValueError("needs a family that works without volumes")
    return families


@dataclass(frozen=True)
class TuneConfig:
    """The search over model families."""

    seed: int
    folds: Annotated[int, Field(ge=2)]
    trials: AtLeast1
    budget_s: float
    families: Annotated[tuple[str, ...], AfterValidator(_with_point_model)]


@dataclass(frozen=True)
class EvaluationConfig:
    """The split by subject, the quantiles of the bounds and the promotion rule."""

    split_seed: int
    test_fraction: Annotated[float, Field(gt=0, lt=1)]
    lower_quantile: Annotated[float, Field(gt=0, lt=0.5)]
    upper_quantile: Annotated[float, Field(gt=0.5, lt=1)]
    max_under_request: float
    uncalibrated_factor: Annotated[float, Field(ge=1)]


@dataclass(frozen=True)
class Config:
    """All of ``params.yaml``."""

    images: ImageChoice
    apps: Annotated[
        dict[str, App],
        named(App, _App),
        Field(alias="app", min_length=1),
        AfterValidator(_without_dots),
    ]
    devices: Annotated[dict[str, DeviceConfig], Field(alias="device", min_length=1)]
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
        campaign = asdict(self.campaign)
        campaign["sweeps"] = list(campaign["sweeps"].values())
        return {
            "images": asdict(self.images), "campaign": campaign, "app": apps, "device": devices,
        }  # fmt: skip

    def check(self) -> None:
        """Check the applications and the images by the rules of the library.

        Raises
        ------
        ConfigError
            Naming the key.
        """
        if self.images.generated:
            self.images.sizes.checked()
        for app in self.apps.values():
            check_app(app)
            for name in app.characteristics or ():
                if name not in CHARACTERISTICS:
                    raise ConfigError(
                        "unknown characteristic",
                        f"app.{app.name}.characteristics: {name}",
                        f"choose from {', '.join(CHARACTERISTICS)}",
                    )
