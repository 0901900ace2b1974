"""A hash that tells images apart without their voxels: of grid, type and characteristics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.files import sha256_of
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.headers import SHAPE_COLUMNS, SPACING_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS = 6  # significant ones; processors differ in the last


def image_identity(row: Mapping[str, Any]) -> str:
    """Return a hash of the grid, the data type and the characteristics of an image.

    A request row and a row of a catalogue have the same for the same image, if both have the
    characteristics. The size of the file does not count: it may be compressed anew.

    Parameters
    ----------
    row : mapping
        Columns of a header, and characteristics if they are known; empty for an unknown image,
        whose identity is empty too.

    Examples
    --------
    >>> grid = dict.fromkeys((*SHAPE_COLUMNS, *SPACING_COLUMNS), 2)
    >>> image_identity(grid | {"dtype": "int16"}) == image_identity(grid | {"dtype": "uint8"})
    False
    >>> image_identity({})
    ''
    """
    facts = {
        name: f"{float(row[name]):.{_DIGITS}g}"
        for name in (*SHAPE_COLUMNS, *SPACING_COLUMNS, *CHARACTERISTICS)
        if _is_number(row.get(name))
    }
    return sha256_of({**facts, "dtype": str(row.get("dtype", ""))}) if facts else ""


def _is_number(value: Any) -> bool:
    try:
        return value is not None and math.isfinite(float(value))
    except (TypeError, ValueError):
        return False
