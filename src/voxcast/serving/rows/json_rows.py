"""Rows of requests as JSON has them, with the types of the model's signature."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.signature import INPUT_TYPES, REQUIRED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_VALUE = 60  # letters of a value in a message


def json_row(row: Mapping[str, Any], lab: Collection[str]) -> dict[str, Any]:
    """Return a row with the types of the signature.

    As in MLflow, numbers may be written as texts. Missing values are left out, and so are columns
    that the model does not have: a client may know more than a model.

    Parameters
    ----------
    row : mapping
        Columns of a request; a volume is text in base64.
    lab : collection of str
        Characteristics of laboratories that the model's applications declare.

    Raises
    ------
    ModelError
        If a value is of another type, or a column that every row has is missing; the message names
        the column.
    """
    typed: dict[str, Any] = {}
    for name, value in row.items():
        kind = INPUT_TYPES.get(name) or ("double" if name in lab else None)
        if kind is None or value is None:
            continue
        if kind == "double":
            number = _double(name, value)
            if not math.isnan(number):
                typed[name] = number
        elif not isinstance(value, str):
            raise _refusal(name, "a text", value)
        else:
            typed[name] = decoded(name, value) if kind == "binary" else value
    if missing := sorted(REQUIRED_COLUMNS - typed.keys()):
        raise ModelError(f"{'is' if len(missing) == 1 else 'are'} missing", ", ".join(missing))
    return typed


def _double(name: str, value: Any) -> float:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        raise _refusal(name, "a number", value)
    try:
        return float(value)
    except ValueError:
        raise _refusal(name, "a number", value) from None
    except OverflowError:  # an integer of more than 308 digits
        raise ModelError("is too large a number", name) from None


def decoded(name: str, value: str) -> bytes:
    """Return the bytes of a text in base64.

    Raises
    ------
    ModelError
        If it is none.
    """
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ModelError("is not base64", name) from None


def _refusal(name: str, kind: str, value: Any) -> ModelError:
    text = repr(value)
    text = text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"
    return ModelError(f"must be {kind}, not {text}", name)
