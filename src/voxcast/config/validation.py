"""Validation of the content of a file; the first error names file and key on one line."""

from __future__ import annotations

import datetime
import difflib
import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from voxcast.config.sections import RuleError, in_words
from voxcast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

T = TypeVar("T")
MISSING = "???"  # Hydra's mark for a value that must be set
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
    "model_type": "a mapping",
}
# The next step, by key that another version of the package has in another form.
CHANGED_KEYS = {
    "runtime": "it is called container_engine",
    "title": "remove it, nothing reads it",
    "sweeps": "sweeps are a mapping by name, `sweeps: {NAME: {...}}`",
    **dict.fromkeys(
        ("usd_per_core_hour", "usd_per_gpu_hour", "usd_per_gb_hour"),
        "remove it, prices are in conf/cluster",
    ),
}
SIMILAR = 0.75  # the smallest ratio of difflib for a suggestion
# Errors that are reported first: a misspelt key is both unknown and missing.
FIRST = ("extra_forbidden", "missing")


def validated(
    adapter: TypeAdapter[T],
    content: Any,
    file: object,
    key: str = "",
    *,
    when_missing: Callable[[Sequence[int | str]], str] | None = None,
    context: Mapping[str, Any] | None = None,
) -> T:
    """Return ``content`` as the type of ``adapter``.

    Parameters
    ----------
    file, key : object, str
        Origin of the content, for errors.
    when_missing : callable, optional
        Returns the next step for the user, by the path of the missing key.
    context : mapping, optional
        Context of the validators.

    Raises
    ------
    ConfigError
        Naming file and key, for an unknown or missing key, a wrong type, a value left ``???`` or
        one that breaks a rule.
    """
    try:
        _check_values(content, file, key)
    except RecursionError:
        raise ConfigError("refers to itself, or is nested too deeply", file) from None
    try:
        # As JSON: in strict mode a list of YAML is then a tuple of Python.
        return adapter.validate_json(json.dumps(content), context=dict(context or {}))
    except ValidationError as errors:
        details = errors.errors(include_url=False)
        error = min(details, key=lambda e: FIRST.index(e["type"]) if e["type"] in FIRST else 2)
    text, path, then = _explained(error, adapter)
    where = _dotted(key, path)
    if when_missing is not None and error["type"] == "missing":
        then = when_missing(path)
    raise ConfigError(text, f"{file}: {where}" if where else file, then)


def _explained(
    error: ErrorDetails, adapter: TypeAdapter[Any]
) -> tuple[str, tuple[int | str, ...], str | None]:
    """Return the problem, the path of its key, and the next step."""
    kind, path, value = error["type"], error["loc"], error["input"]
    changed = CHANGED_KEYS.get(str(path[-1])) if path else None
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, RuleError):
        return cause.text, (*path, cause.key) if cause.key else path, cause.then
    if kind == "missing":
        return "key is missing", path, None
    if kind == "extra_forbidden":
        keys = _keys_at(adapter.json_schema(), path[:-1])
        similar_keys = difflib.get_close_matches(str(path[-1]), keys, 1, SIMILAR)
        similar = f"did you mean {similar_keys[0]}?" if similar_keys else None
        return f"unknown key, choose from {', '.join(sorted(keys))}", path, changed or similar
    if kind == "literal_error":
        expected = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
        return f"{in_words(value)} is not one of {expected}", path, None
    if kind in NEEDS:
        return f"needs {NEEDS[kind]}, not {in_words(value)}", path, changed
    return error["msg"], path, None


def _check_values(content: Any, file: object, key: str) -> None:
    """Refuse values that are left open, and those that JSON does not have, such as dates."""
    for path, value in _values(content, ()):
        where = _dotted(key, path)
        if value == MISSING:
            raise ConfigError("needs a value", f"{file}: {where}", f"set it, e.g. -S {where}=…")
        if isinstance(value, datetime.date):
            raise ConfigError("cannot be a date", f"{file}: {where}", "write it in quotes")
        if not isinstance(value, str | int | float | dict | list | tuple | None):
            raise ConfigError(f"cannot be {type(value).__name__}", f"{file}: {where}")


def _values(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield all values with their paths, and the keys of mappings as values of theirs."""
    yield path, value
    items = enumerate(value) if isinstance(value, list | tuple) else ()
    for name, child in value.items() if isinstance(value, dict) else items:
        if isinstance(value, dict) and name != MISSING:
            yield (*path, str(name)), name
        yield from _values(child, (*path, name))


def _keys_at(schema: Mapping[str, Any], path: Sequence[int | str]) -> list[str]:
    """Return the keys that the JSON schema has at ``path``."""

    def resolved(node: Any) -> Any:
        node = next((n for n in node.get("anyOf", ()) if n.get("type") != "null"), node)
        return schema["$defs"][node["$ref"].split("/")[-1]] if "$ref" in node else node

    node = resolved(schema)
    for part in path:
        if isinstance(part, int):
            node = resolved(node["items"])
        else:
            node = resolved(node.get("properties", {}).get(part) or node["additionalProperties"])
    return list(node["properties"])


def _dotted(key: str, path: Sequence[int | str]) -> str:
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    return key
