"""The voxels of a file as stored: read in blocks of bounded size, or as one array.

`voxcast.images.volumes` reduces the blocks to a coarse grid. A damaged, short or compressed file
is never held in memory as a whole.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.images.headers import COPY_AGAIN, MAX_VOXELS, Layout, read_layout

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import BinaryIO

# A head at 7 T in 0.25 mm has 5e8 voxels; a compressed file of some megabytes can declare any
# number, and reading it would take minutes.
BLOCK_BYTES = 4 * 2**20
MAX_PADDING_BYTES = 2**30


@dataclass(frozen=True)
class LoadedVolume:
    """All voxels as stored; their value is ``array * layout.slope + layout.intercept``."""

    array: np.ndarray
    layout: Layout
    path: Path


def load(path: str | os.PathLike[str], max_voxels: int = MAX_VOXELS) -> LoadedVolume:
    """Read all voxels of a volume into one array, shape and order as in the file.

    For a volume of any size use `blocks`, whose memory does not depend on the volume.

    Raises
    ------
    ImageError
        As `voxcast.images.headers.read_header` and `blocks`.
    """
    path = Path(path)
    layout = read_layout(path)
    check_size(layout, path, max_voxels)
    array: np.ndarray = np.empty(layout.header.voxels, layout.dtype)
    filled = 0
    for block in blocks(path, layout, max_voxels):
        array[filled : filled + block.size] = block
        filled += block.size
    return LoadedVolume(array.reshape(layout.header.shape, order="F"), layout, path)


def blocks(path: Path, layout: Layout, max_voxels: int = MAX_VOXELS) -> Iterator[np.ndarray]:
    """Yield the voxels as stored, in the order of the file, in one-dimensional arrays.

    A block holds as many whole rows of the first axis as fit into 4 MiB, or a part of one row that
    is longer than that; see `block_voxels`. The checksum of a compressed file is checked after its
    last voxel, so what is computed from the blocks is valid only after the last one.

    Raises
    ------
    ImageError
        If the volume has more than ``max_voxels`` voxels, or its voxels are damaged.
    """
    check_size(layout, path, max_voxels)
    try:
        # Not through nibabel, which stops before gzip's checksum and lets damage pass.
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as stream:
            yield from _stored(stream, layout)
            if path.suffix.lower() == ".gz":
                _read_padding(stream, path)
    except (EOFError, zlib.error, OSError) as error:
        raise ImageError(f"voxels are damaged ({one_line(error)})", path, COPY_AGAIN) from None


def block_voxels(layout: Layout) -> int:
    """Return the number of voxels in each of `blocks` but the last, or the last of a long row."""
    row, most = layout.header.shape[0], max(1, BLOCK_BYTES // layout.dtype.itemsize)
    return most // row * row or most


def check_size(layout: Layout, path: Path, max_voxels: int) -> None:
    """Raise ImageError if a volume has more than ``max_voxels`` voxels."""
    if layout.header.voxels > max_voxels:
        sizes = " x ".join(map(str, layout.header.shape))
        raise ImageError(
            f"has {layout.header.voxels} voxels ({sizes}), at most {max_voxels} are read",
            path,
            "give --max-voxels (features.max_voxels in conf) to read more, or resample it",
        )


def _stored(stream: BinaryIO | gzip.GzipFile, layout: Layout) -> Iterator[np.ndarray]:
    _skip(stream, layout.offset_bytes)
    row, most = layout.header.shape[0], block_voxels(layout)
    left = layout.header.voxels
    row_left = row
    while left:
        count = min(most, left if most >= row else row_left)
        data = stream.read(count * layout.dtype.itemsize)
        if len(data) < count * layout.dtype.itemsize:
            raise EOFError(f"{left * layout.dtype.itemsize - len(data)} bytes are missing")
        block: np.ndarray[Any, Any] = np.frombuffer(data, layout.dtype)
        yield block
        left -= count
        row_left = (row_left - count) or row


def _skip(stream: BinaryIO | gzip.GzipFile, count: int) -> None:
    while count > 0 and (data := stream.read(min(count, BLOCK_BYTES))):
        count -= len(data)


def _read_padding(stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
    """Read to the end, where gzip compares its checksum."""
    padding_bytes = 0
    while data := stream.read(1 << 20):
        padding_bytes += len(data)
        if padding_bytes > MAX_PADDING_BYTES:
            raise ImageError("holds more than 1 GiB after its last voxel", path, COPY_AGAIN)
