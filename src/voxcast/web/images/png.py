"""8-bit greyscale PNG, see the PNG specification (W3C, third edition), clauses 5 and 11."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTH_BITS, _GREYSCALE, _DEFLATE, _FILTERS, _NOT_INTERLACED = 8, 0, 0, 0, 0


def png(pixels: np.ndarray) -> bytes:
    """Return the file of a greyscale picture.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (height, width)
        The first row is the upper one.
    """
    height, width = pixels.shape
    header = struct.pack(
        ">IIBBBBB", width, height, _DEPTH_BITS, _GREYSCALE, _DEFLATE, _FILTERS, _NOT_INTERLACED
    )
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: the row is not filtered
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
