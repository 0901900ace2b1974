"""The sections of ``params.yaml`` as dataclasses, read strictly, and the rules of their values.

Every field of a dataclass is a required key, even if it has a default in Python, unless its
metadata say ``optional``. A field that is a dataclass, or holds some, is a section in turn. A
`Key` says where the file differs from the dataclass. An error names file and key in one line.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from voxcast.apps.checks import check_app
from voxcast.errors import ConfigError
from voxcast.images.characteristics import (
    CHARACTERISTICS,
    LabCharacteristic,
    check_lab_characteristics,
)
from voxcast.images.sources import ImageChoice
from voxcast.measure.plan import Sweep
from voxcast.quantities import parse_bytes
from voxcast.records import NOISY_REPEAT, App, Configuration

T = TypeVar("T")
UNSET = "???"  # Hydra's mark for a value that must be set
SIMILAR = 0.75  # the smallest ratio of difflib for a suggestion
# The required type, by type of pydantic's error.
NEEDS = {
    "int_type": "int",
    "int_from_float": "int",
    "float_type": "float",
    "string_type": "str",
    "bool_type": "bool",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}


@dataclass(frozen=True)
class Place:
    """A key of a file, and the next step for a user whose file lacks a key below it."""

    file: object
    key: str = ""
    when_missing: str | None = None

    def at(self, part: int | str) -> Place:
        """Return the place of an entry."""
        below = f"{self.key}.{part}" if self.key else str(part)
        return replace(self, key=f"{self.key}[{part}]" if isinstance(part, int) else below)

    def error(self, problem: str, then: str | None = None) -> ConfigError:
        """Return the error that names this place."""
        return ConfigError(problem, f"{self.file}: {self.key}" if self.key else self.file, then)


@dataclass(frozen=True)
class Key:
    """How a field is written in a file, and the rule of its value.

    Attributes
    ----------
    name : str
        The key, if it is not the name of the field.
    read : callable, optional
        Returns the value of the field from the value in the file and its place; by default the
        value must have the type of the field.
    holds, rule : callable, str
        Whether a value is allowed, and the error of other values.
    """

    name: str = ""
    read: Callable[[Any, Place], Any] | None = None
    holds: Callable[[Any], bool] = lambda _: True
    rule: str = ""


Keys = Mapping[str, Key]
Rules = Mapping[type, Keys]  # by dataclass
PLAIN = Key()


def at_least(low: int) -> Key:
    """Return the rule of a smallest number; None is allowed."""
    rule = "must not be negative" if low == 0 else f"must be at least {low}"
    return Key(holds=lambda value: value is None or value >= low, rule=rule)


def between(low: float, high: float) -> Key:
    """Return the rule of an open interval."""
    rule = f"must be between {low:g} and {high:g}"
    return Key(holds=lambda value: low < value < high, rule=rule)


def quantity(parse: Callable[[str], float], *, optional: bool = False) -> Callable[..., Any]:
    """Return a reader of texts with a unit; None is allowed if ``optional``."""

    def read(value: Any, place: Place) -> Any:
        if value is None and optional:
            return None
        if not isinstance(value, str):
            then = "write a number and a unit as one text"
            raise place.error(f"needs str, not {in_words(value)}", then)
        try:
            return parse(value)
        except ConfigError as error:
            raise place.error(error.problem, error.then) from None

    return read


def in_words(value: Any) -> str:
    """Return a value for an error message; only the type of a list or a mapping."""
    if isinstance(value, list | tuple | dict):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)


def section(
    record: type[T], content: Any, place: Place, rules: Rules | None = None, **preset: Any
) -> T:
    """Return a mapping as a dataclass.

    Parameters
    ----------
    record : type
        The dataclass.
    rules : mapping, optional
        Where the file differs from the dataclass, and from dataclasses in it.
    preset : dict
        Fields that are not keys of the mapping.

    Raises
    ------
    ConfigError
        For an unknown or missing key, a wrong type, or a value that is left open or breaks a rule.
    """
    _check_values(content, place)
    entries = mapping(content, place)
    hints: dict[str, Any] = get_type_hints(record)
    rules = rules or {}
    chosen = {name: rules.get(record, {}).get(name, PLAIN) for name in hints if name not in preset}
    names = {key.name or name: name for name, key in chosen.items()}
    for name in entries:
        if name not in names:
            similar = difflib.get_close_matches(str(name), names, 1, SIMILAR)
            then = f"did you mean {similar[0]}?" if similar else None
            choices = ", ".join(sorted(names))
            raise place.at(name).error(f"unknown key, choose from {choices}", then)
    optional = {f.name for f in fields(record) if f.metadata.get("optional")}  # type: ignore[arg-type]
    for name, field in names.items():
        if name not in entries and field not in optional:
            raise place.at(name).error("key is missing", place.when_missing)
    for name, entry in entries.items():
        field = names[name]
        key, below = chosen[field], place.at(name)
        read = key.read or functools.partial(_of_type, hints[field], rules=rules)
        preset[field] = read(entry, below)
        if not key.holds(preset[field]):
            raise below.error(key.rule)
    return record(**preset)


def mapping(content: Any, place: Place) -> dict[str, Any]:
    """Return ``content``, which must be a mapping."""
    if not isinstance(content, dict):
        raise place.error(f"needs a mapping, not {in_words(content)}")
    return content


def _of_type(hint: Any, content: Any, place: Place, rules: Rules) -> Any:
    """Return ``content`` as a section, sections by name, a list of sections, or a plain value."""
    record: Any = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
    if record is None:
        return typed(hint, content, place)
    if record is hint:
        return section(hint, content, place, rules)
    if get_origin(hint) is dict:
        entries = mapping(content, place)
        preset = {name: {"name": name} for name in entries if "name" in get_type_hints(record)}
        return {
            name: section(record, entry, place.at(name), rules, **preset.get(name, {}))
            for name, entry in entries.items()
        }
    listed = enumerate(typed(list, content, place))
    return tuple(section(record, entry, place.at(n), rules) for n, entry in listed)


def typed(hint: Any, content: Any, place: Place) -> Any:
    """Return ``content``, which must have the type ``hint``."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(strict=True))
    try:
        # As JSON: in strict mode a list of YAML is then a tuple of Python.
        return adapter.validate_json(json.dumps(content))
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
    for part in error["loc"]:
        place = place.at(part)
    value = in_words(error["input"])
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
        raise place.error(f"{value} is not one of {expected}")
    needed = NEEDS.get(error["type"])
    raise place.error(error["msg"] if needed is None else f"needs {needed}, not {value}")


def _check_values(content: Any, place: Place) -> None:
    """Refuse values that are left open, and values that JSON does not have, such as dates.

    Raises
    ------
    ConfigError
        For the first such value, and for a file that refers to itself.
    """
    try:
        for below, value in _values(content, place):
            if value == UNSET:
                raise below.error("needs a value", f"set it, e.g. -S {below.key}=…")
            if isinstance(value, datetime.date):
                raise below.error("cannot be a date", "write it in quotes")
            if not isinstance(value, str | int | float | dict | list | tuple | None):
                raise below.error(f"cannot be {type(value).__name__}")
    except RecursionError:
        problem = "refers to itself, or is nested too deeply"
        raise ConfigError(problem, place.file) from None


def _values(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield all values with their places, and the keys of mappings as values of theirs."""
    yield place, value
    items = enumerate(value) if isinstance(value, list | tuple) else ()
    for name, child in value.items() if isinstance(value, dict) else items:
        if isinstance(value, dict) and name != UNSET:
            yield place.at(str(name)), name
        yield from _values(child, place.at(name))


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

    images: ImageChoice
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
            for name in app.characteristics or ():
                if name not in {*CHARACTERISTICS, *declared}:
                    where = f"app.{app.name}.characteristics: {name}"
                    then = (
                        "see `voxcast inspect --list`, or declare it in features.characteristics"
                    )
                    raise ConfigError("unknown characteristic", where, then)
    except ConfigError as error:
        raise ConfigError(f"{error.where}: {error.problem}", file, error.then) from None
