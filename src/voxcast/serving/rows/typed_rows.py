"""Rows of a file with the types of the signature, each by itself, so that one spoils no other."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.signature import REQUIRED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping


def typed_row(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the cells of a row that the model reads, without missing ones.

    Parameters
    ----------
    row : mapping
        Cells by column. Numbers may be texts, and bytes may be texts in base64.
    types : mapping of str to str
        Types of the columns, as `voxcast.serving.signature.INPUT_TYPES`.

    Raises
    ------
    ModelError
        If a cell is of another type, or a column that is required is missing.
    """
    typed = {}
    for name, kind in types.items():
        value = row.get(name)
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            typed[name] = _CASTS[kind](value, name)
    if missing := sorted(REQUIRED_COLUMNS - typed.keys()):
        raise ModelError("is missing", missing[0])
    return typed


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool):
        raise ModelError(f"must be a number, not {value!r}", name)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ModelError(f"must be a number, not {value!r:.60}", name) from None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ModelError(f"must be text, not {value!r:.60}", name)
    return value


def _bytes(value: Any, name: str) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(_text(value, name), validate=True)
    except binascii.Error:
        raise ModelError("must be bytes, or text in base64", name) from None


_CASTS = {"double": _number, "string": _text, "binary": _bytes}
