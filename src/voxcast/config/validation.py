"""Sections of a file as dataclasses, read strictly; an error names file and key in one line.

Every field of the dataclass is a required key, even if it has a default in Python, unless its
metadata say ``optional``. A field that is a dataclass, or holds some, is a section in turn. A
`Key` says where the file differs from the dataclass.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from voxcast.errors import ConfigError

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
        preset[field] = _value(hints[field], entry, place.at(name), chosen[field], rules)
    return record(**preset)


def mapping(content: Any, place: Place) -> dict[str, Any]:
    """Return ``content``, which must be a mapping."""
    if not isinstance(content, dict):
        raise place.error(f"needs a mapping, not {in_words(content)}")
    return content


def _value(hint: Any, content: Any, place: Place, key: Key, rules: Rules) -> Any:
    read = key.read or functools.partial(_of_type, hint, rules=rules)
    value = read(content, place)
    if not key.holds(value):
        raise place.error(key.rule)
    return value


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
