"""The parts of a gzip file beside its data, bounded before it is decompressed.

Python reads names and padding byte by byte, and a member takes longer than a megabyte of data, so
that a small file of empty members would take minutes (RFC 1952, 2.2 and 2.3).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from voxcast.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

MAX_MEMBERS = 10_000  # bgzip needs this many for 650 MB of voxels
MAX_BESIDE_BYTES = 2**20  # of all headers, and of zeros between members and at the end
MAX_HEADER_BYTES = 2**16
THEN = "compress it again with gzip"

_MAGIC = b"\x1f\x8b\x08"
_BLOCK_BYTES = 2**20
_FIXED_BYTES = 10
_EXTRA, _NAME, _COMMENT = 4, 8, 16


def check_members(path: Path) -> None:
    """Refuse a gzip file of too many members, or with too much beside them.

    Members are found by their first bytes. These come by chance once in 16 MB of data, which the
    limits leave room for.

    Raises
    ------
    ImageError
        If the file exceeds a limit.
    """
    members = beside_bytes = 0
    with path.open("rb", buffering=0) as file:
        for position in _positions(file):
            members += 1
            if members > MAX_MEMBERS:
                raise ImageError(f"has more than {MAX_MEMBERS} gzip members", path, THEN)
            beside_bytes += _header_bytes(_at(file, position)) + _zeros_before(file, position)
            if beside_bytes > MAX_BESIDE_BYTES:
                raise _too_much(path)
        if beside_bytes + _zeros_before(file, file.seek(0, 2)) > MAX_BESIDE_BYTES:
            raise _too_much(path)


def _positions(file: BinaryIO) -> Iterator[int]:
    """Yield where members may begin."""
    start, left = 0, b""
    while block := _at(file, start + len(left), _BLOCK_BYTES):
        data = left + block
        position = data.find(_MAGIC)
        while position >= 0:
            yield start + position
            position = data.find(_MAGIC, position + 1)
        left = data[-len(_MAGIC) + 1 :]
        start += len(data) - len(left)


def _header_bytes(data: bytes) -> int:
    """Return the size of a header, `MAX_BESIDE_BYTES` more for one that does not end here."""
    if len(data) < _FIXED_BYTES:
        return len(data)  # cut short, or none
    flags, end = data[3], _FIXED_BYTES
    if flags & _EXTRA and len(data) >= end + 2:
        end += 2 + struct.unpack_from("<H", data, end)[0]
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            zero = data.find(b"\0", end)
            if zero < 0:
                return MAX_BESIDE_BYTES + 1 if len(data) == MAX_HEADER_BYTES else len(data)
            end = zero + 1
    return end


def _zeros_before(file: BinaryIO, position: int) -> int:
    """Return how many zeros end at a position."""
    count = 0
    while position and count <= MAX_BESIDE_BYTES:
        size = min(position, 2**16 if count else 2**9)
        data = _at(file, position - size, size)
        zeros = len(data) - len(data.rstrip(b"\0"))
        count, position = count + zeros, position - size
        if zeros < size:
            break
    return count


def _at(file: BinaryIO, position: int, size: int = MAX_HEADER_BYTES) -> bytes:
    file.seek(position)
    return file.read(size)


def _too_much(path: Path) -> ImageError:
    return ImageError("has more than 1 MiB of gzip names and padding", path, THEN)
