"""Refusals of pydantic in our words: of files of a project, and of questions to a service."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BRIEF = reprlib.Repr()  # also of lists in lists that are too deep for `repr`
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 60
_PREFIX = "Value error, "  # begins the message of a validator of ours

# Reasons of pydantic by their type, for those who do not know Python.
_REASONS = {
    "bool_parsing": "must be true or false, not {value}",
    "bool_type": "must be true or false, not {value}",
    "dataclass_type": "must be an object",
    "dict_type": "must be an object",
    "extra_forbidden": "unknown field; `GET /openapi.json` lists those of each question",
    "finite_number": "must be finite",
    "float_parsing": "must be a number, not {value}",
    "float_type": "must be a number, not {value}",
    "greater_than": "must be above {gt}, not {value}",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "int_from_float": "must be a whole number, not {value}",
    "int_parsing": "must be a whole number, not {value}",
    "int_parsing_size": "is too large a number",
    "int_type": "must be a whole number, not {value}",
    "json_invalid": "not valid JSON: {error}",
    "less_than": "must be below {lt}, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}, not {value}",
    "missing": "is missing",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "multiple_of": "must be a multiple of {multiple_of}, not {value}",
    "string_too_long": "may have at most {max_length} characters",
    "string_too_short": "is empty",
    "string_type": "must be text, not {value}",
    "too_long": "may have at most {max_length} entries",
    "too_short": "needs {min_length} or more entries",
    "tuple_type": "must be a list",
}


def brief(value: Any) -> str:
    """Return a value as a message has it, in some letters however large or nested it is."""
    return _BRIEF.repr(value)


def plain_number(value: float) -> str:
    """Write a number with all its digits, so that it never looks like a limit that it exceeds."""
    return repr(value).removesuffix(".0")


def reason_of(error: Mapping[str, Any]) -> str:
    """Return why an error of pydantic was raised, without the words of a library."""
    form = _REASONS.get(error["type"])
    if form is None:
        return str(error["msg"]).removeprefix(_PREFIX)
    context = {
        name: plain_number(limit) if isinstance(limit, float) else limit
        for name, limit in error.get("ctx", {}).items()
    }
    value = error["input"]
    text = plain_number(value) if isinstance(value, float) else brief(value)
    return form.format_map({**context, "value": text})


def refusal_of(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return where the first error of a question lies, and why."""
    names = (error["loc"][-1] for error in errors if error["type"] == "missing")
    missing = sorted(name for name in names if isinstance(name, str))
    if len(missing) > 1:
        return ", ".join(missing), "are missing"
    first = errors[0]
    parts = [] if first["type"] == "json_invalid" else first["loc"]
    # Without the kind that was chosen in a union.
    where = ".".join(str(part) for part in parts if part != "body" and "[" not in str(part))
    return where, reason_of(first)
