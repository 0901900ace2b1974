"""Sections of a configuration file as pydantic models, and records of the library as sections.

A section is strict: an unknown key, a missing key and a wrong type are errors. A record of the
library that is read from a file is annotated with `Keys` or `ByName`, so that it has one
definition; every field is a required key, even if the record has a default in Python, unless its
metadata say ``optional``.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    create_model,
)

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class Section(BaseModel):
    """A mapping in a configuration file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RuleError(ValueError):
    """A value of the right type that breaks a rule.

    Parameters
    ----------
    text : str
        The problem, as one clause.
    key : str
        The key below the section that was validated; empty for the value itself.
    then : str, optional
        What the user can do about it.
    """

    def __init__(self, text: str, key: str = "", then: str | None = None) -> None:
        super().__init__(text)
        self.text, self.key, self.then = text, key, then


def rule(holds: Callable[[Any], bool], text: str) -> AfterValidator:
    """Return a validator that rejects a value for which ``holds`` is false."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise RuleError(text)
        return value

    return AfterValidator(check)


def at_least(low: int) -> AfterValidator:
    """Return a validator of a number's smallest value; None passes."""
    text = "must not be negative" if low == 0 else f"must be at least {low}"
    return rule(lambda value: value is None or value >= low, text)


def between(low: float, high: float) -> AfterValidator:
    """Return a validator of an open interval."""
    return rule(lambda value: low < value < high, f"must be between {low:g} and {high:g}")


def in_words(value: Any) -> str:
    """Return a value for an error message; only the type of a list or a mapping."""
    if isinstance(value, list | tuple | dict):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "null" if value is None else repr(value)


def quantity(parse: Callable[[str], float], *, optional: bool = False) -> BeforeValidator:
    """Return a validator that reads a text with a unit; None passes if ``optional``."""

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        if not isinstance(value, str):
            then = "write a number and a unit as one text"
            raise RuleError(f"needs str, not {in_words(value)}", then=then)
        try:
            return parse(value)
        except ConfigError as error:
            raise RuleError(error.problem, then=error.then) from None

    return BeforeValidator(read)


@dataclass(frozen=True)
class Keys:
    """Annotates a dataclass of the library that is read from a mapping.

    Attributes
    ----------
    changed : mapping
        Type in the file by field, where it differs from the type in the dataclass.
    spread : tuple of str
        Fields that are dataclasses themselves and whose keys are in the same mapping.
    """

    changed: Mapping[str, Any] = field(default_factory=dict)
    spread: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the mapping, turned into the dataclass."""
        as_record = AfterValidator(lambda section: self.record(source, section))
        as_dict = PlainSerializer(_as_keys)
        return handler.generate_schema(Annotated[self.section(source), as_record, as_dict])

    def section(self, record: type, without: tuple[str, ...] = ()) -> type[Section]:
        """Return the section that has the fields of ``record`` as keys."""
        keys: dict[str, Any] = {}
        for name, hint in get_type_hints(record).items():
            if name in self.spread:
                keys |= get_type_hints(hint)
            elif name not in without:
                keys[name] = hint
        defaults = {entry.name: _default(entry) for entry in _optional(record)}
        typed: dict[str, Any] = {
            name: (self.changed.get(name, hint), defaults.get(name, ...))
            for name, hint in keys.items()
        }
        return create_model(record.__name__, __base__=Section, **typed)

    def record(self, record: type, section: Section, **named: Any) -> Any:
        """Return ``record`` with the values of ``section``."""
        values = dict(section) | named
        for name in self.spread:
            dataclass_type = get_type_hints(record)[name]
            values[name] = dataclass_type(
                **{key: values.pop(key) for key in get_type_hints(dataclass_type)}
            )
        return record(**values)


@dataclass(frozen=True)
class ByName(Keys):
    """Annotates a tuple or dictionary of records that are keyed by their name in the file."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of a mapping of mappings, turned into records with a name."""
        record = get_args(source)[get_origin(source) is dict]

        def with_names(sections: dict[str, Section]) -> Any:
            records = {
                name: self.record(record, section, name=name) for name, section in sections.items()
            }
            return records if get_origin(source) is dict else tuple(records.values())

        def as_dicts(records: Any) -> Any:
            if isinstance(records, dict):
                return {name: _as_keys(entry) for name, entry in records.items()}
            return tuple(_as_keys(entry) for entry in records)

        section = self.section(record, without=("name",))
        return handler.generate_schema(
            Annotated[
                dict[str, section],  # type: ignore[valid-type]
                AfterValidator(with_names),
                PlainSerializer(as_dicts),
            ]
        )


def _optional(record: Any) -> list[Field[Any]]:
    return [entry for entry in fields(record) if entry.metadata.get("optional")]


def _default(entry: Field[Any]) -> Any:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def _as_keys(record: Any) -> dict[str, Any]:
    """Return the keys of a record, without those that are optional and not set."""
    unset = {e.name for e in _optional(record) if getattr(record, e.name) == _default(e)}
    return {name: value for name, value in asdict(record).items() if name not in unset}
