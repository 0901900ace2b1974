"""Rows of requests with the types of the signature, from JSON, from a file or from Python.

Whichever way rows come, they are cast here, and so refused in the same words; whether values are
within their limits is checked by `voxcast.serving.rows.request_rows`.
"""

from __future__ import annotations

import base64
import math
import reprlib
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, RowError
from voxcast.serving.signature import REQUIRED_COLUMNS, input_types

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_BRIEF = reprlib.Repr()  # also of lists in lists that are too deep for `repr`
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 60


def typed_rows(rows: Sequence[Mapping[str, Any]], lab: Collection[str]) -> list[dict[str, Any]]:
    """Return the rows of a request with the types of the signature.

    Parameters
    ----------
    rows : sequence of mapping
        See `typed_row`.
    lab : collection of str
        Characteristics of laboratories that the model's applications declare.

    Raises
    ------
    RowError
        If a row is refused.
    """
    types, typed = input_types(lab), []
    for number, row in enumerate(rows):
        try:
            typed.append(typed_row(row, types))
        except ModelError as error:
            raise RowError(number, error) from None
    return typed


def typed_row(row: Mapping[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the cells of a row that the model reads, without missing ones.

    As in MLflow, numbers may be written as text, and bytes as text in base64. None and NaN are
    missing. Columns that the model does not have are passed over: a client may know more than it.

    Parameters
    ----------
    row : mapping
        Cells by column.
    types : mapping of str to str
        Types of the columns, see `voxcast.serving.signature.input_types`.

    Raises
    ------
    ModelError
        If a cell is of another type, or columns that every row has are missing; the message names
        the columns.
    """
    typed: dict[str, Any] = {}
    for name, value in row.items():
        kind = types.get(name)
        if kind is None or _is_missing(value):
            continue
        cell = _CASTS[kind](value, name)
        if not _is_missing(cell):
            typed[name] = cell
    if missing := sorted(REQUIRED_COLUMNS - typed.keys()):
        raise ModelError(f"{'is' if len(missing) == 1 else 'are'} missing", ", ".join(missing))
    return typed


def double(value: Any, name: str) -> float:
    """Return a number, which may be written as text.

    Raises
    ------
    ModelError
        If it is another value, such as true, which Python takes for 1.
    """
    if isinstance(value, bool) or not isinstance(value, float | str | Real | Decimal):
        raise _refusal(name, "a number", value)
    try:
        return float(value)
    except ValueError:
        raise _refusal(name, "a number", value) from None
    except OverflowError:  # an integer of more than 308 digits
        raise ModelError("is too large a number", name) from None


def binary(value: Any, name: str) -> bytes:
    """Return bytes, which may be written as text in base64.

    Raises
    ------
    ModelError
        If they are neither.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise _refusal(name, "bytes, or text in base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:  # also with letters beyond ASCII
        raise ModelError("is not base64", name) from None


def _string(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _refusal(name, "text", value)
    return value


_CASTS = {"double": double, "string": _string, "binary": binary}


def brief(value: Any) -> str:
    """Return a value as a message has it, in some letters however large or nested it is."""
    return _BRIEF.repr(value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _refusal(name: str, kind: str, value: Any) -> ModelError:
    return ModelError(f"must be {kind}, not {brief(value)}", name)
