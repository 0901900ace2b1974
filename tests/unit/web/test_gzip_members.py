"""Gzip files of many members, long names and padding: refused before they cost anything."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from voxcast.errors import ImageError
from voxcast.web.images.gzip_members import check_members

EMPTY = gzip.compress(b"")
DATA = np.random.default_rng(0).integers(0, 99, 3_000_000).astype(np.uint8).tobytes()


def member(flags: int, fields: bytes) -> bytes:
    """Return a member with optional fields of its header (RFC 1952, 2.3)."""
    return EMPTY[:3] + bytes([flags]) + EMPTY[4:10] + fields + EMPTY[10:]


def blocked(data: bytes, size: int = 65_280) -> bytes:
    """Return data as bgzip compresses it."""
    return b"".join(gzip.compress(data[n : n + size]) for n in range(0, len(data), size))


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(DATA), blocked(DATA), blocked(DATA) + bytes(100_000),
        gzip.compress(DATA, compresslevel=0), gzip.compress(bytes(10**7), compresslevel=0),
        member(8, b"scan.nii\0"), member(4 | 8 | 16, b"\2\0ab" + b"scan.nii\0a comment\0"),
        b"\x1f\x8b", b"\x1f\x8b\x08", EMPTY[:12],
    ],
    ids=range(10),  # the bytes hold the time
)  # fmt: skip
def test_files_of_compressors_pass(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image.nii.gz"
    path.write_bytes(content)
    check_members(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (EMPTY * 10_001, "more than 10000 gzip members"),
        (gzip.compress(DATA) + EMPTY * 10_001, "more than 10000 gzip members"),
        (member(8, b"n" * 2_000_000 + b"\0"), "names and padding"),
        (member(16, b"n" * 2_000_000 + b"\0"), "names and padding"),
        (EMPTY + member(8, b"n" * 70_000 + b"\0"), "names and padding"),
        (member(4, struct.pack("<H", 65_000) + bytes(65_000)) * 20, "names and padding"),
        (gzip.compress(DATA) + bytes(2_000_000), "names and padding"),
        ((EMPTY + bytes(60_000)) * 20 + EMPTY, "names and padding"),
    ],
    ids=range(8),
)
def test_what_would_take_minutes_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "image.nii.gz"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=problem):
        check_members(path)
