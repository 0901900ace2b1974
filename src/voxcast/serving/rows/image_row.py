"""The columns of a request row that an image's header gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcast.serving.signature import REQUEST_HEADER_COLUMNS

if TYPE_CHECKING:
    from voxcast.images.header import ImageHeader


def header_row(header: ImageHeader) -> dict[str, Any]:
    """Return the header's columns of a request; numbers are floats, as in the signature."""
    columns = header.columns()
    return {
        name: float(columns[name]) if isinstance(columns[name], int) else columns[name]
        for name in REQUEST_HEADER_COLUMNS
    }
