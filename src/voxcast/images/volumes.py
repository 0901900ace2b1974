"""One volume, read once: its hash, its foreground on the native grid, every k-th voxel of it.

What is computed from them is in `voxcast.images.characteristics` and
`voxcast.images.network_volume`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from voxcast.errors import ImageError
from voxcast.images.foreground import Foreground, RowBits, foreground
from voxcast.images.headers import MAX_VOXELS, Layout, read_layout
from voxcast.images.voxels import blocks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

POINTS = 64
# A larger volume is decompressed a second time instead of being kept between two passes.
KEPT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class CoarseVolume:
    """Every `stride`-th voxel of a volume, in its native orientation.

    `data` is float32 and finite; `shape` and `spacing_mm` are those of the native grid.
    """

    data: np.ndarray
    stride: tuple[int, int, int]
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, ...]
    axcodes: str


@dataclass(frozen=True)
class VolumeReading:
    """What is taken from the voxels of a file; `above_mean` has a bit for each of them."""

    layout: Layout
    coarse: CoarseVolume
    above_mean: RowBits
    foreground: Foreground
    voxel_sha256: str


def read_volume(
    path: str | os.PathLike[str], points: int = POINTS, max_voxels: int = MAX_VOXELS
) -> VolumeReading:
    """Read a volume: its coarse grid, its foreground on the native grid, the hash of its content.

    The hash is of voxels, type, shape, scaling and affine (to 1e-4). Memory is at most 256 MiB for
    the voxels, one bit for each of them, and what a few planes and a mask's runs take.

    Raises
    ------
    ImageError
        See `load_coarse`.
    """
    path = Path(path)
    layout = read_layout(path)
    affine = (layout.affine.round(4) + 0.0).tolist()  # + 0.0 makes -0.0 and 0.0 equal
    facts = (layout.header.shape, layout.dtype.str, layout.slope, layout.intercept, affine)
    digest = hashlib.sha256(repr(facts).encode())
    keep = layout.header.voxels * layout.dtype.itemsize <= KEPT_BYTES
    voxels: list[np.ndarray] = []
    total = 0.0

    def on_block(block: np.ndarray) -> None:
        nonlocal total
        digest.update(block.data)
        total += _sum(block, layout)
        if keep:
            voxels.append(block)

    coarse = _coarse(path, layout, points, max_voxels, on_block)
    if not math.isfinite(total):
        raise _out_of_precision(path)
    again = voxels if keep else blocks(path, layout, max_voxels)
    bits = _above(again, layout, total / layout.header.voxels)
    voxels.clear()
    return VolumeReading(layout, coarse, bits, foreground(bits, coarse.stride), digest.hexdigest())


def load_coarse(
    path: str | os.PathLike[str], points: int = POINTS, max_voxels: int = MAX_VOXELS
) -> CoarseVolume:
    """Read a volume and keep every k-th voxel, so that no axis has more than `points`.

    Non-finite voxels become 0. Memory does not depend on the size of the volume.

    Raises
    ------
    ImageError
        As `voxcast.images.headers.read_header` and `voxcast.images.voxels.blocks`; and if all
        voxels are NaN, or all are equal, or their range is beyond single precision.
    """
    path = Path(path)
    return _coarse(path, read_layout(path), points, max_voxels)


def _coarse(
    path: Path,
    layout: Layout,
    points: int,
    max_voxels: int,
    on_block: Callable[[np.ndarray], object] = lambda _block: None,
) -> CoarseVolume:
    header = layout.header
    stride = strides(header.shape, points)
    i, j, k = (len(range(0, n, step)) for n, step in zip(header.shape, stride, strict=True))
    # Rows of the first axis in the order of the file.
    grid_rows: np.ndarray = np.empty((k * j, i), layout.dtype)
    first = 0
    for block in blocks(path, layout, max_voxels):
        on_block(block)
        _keep(block, first, header.shape, stride, grid_rows)
        first += block.size
    data = _values(grid_rows.reshape(k, j, i).transpose(2, 1, 0), layout)
    if not np.isfinite(data).any() or np.ptp(data[np.isfinite(data)]) == 0:
        # Rare, so every voxel is checked before a volume is rejected.
        _check_varies(path, layout, max_voxels)
    data = np.nan_to_num(data, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    with np.errstate(over="ignore"):
        extent = float(np.ptp(data))
    single = np.finfo(np.float32)
    # 0 is that of the coarse grid; the voxels between its points vary.
    if extent and not single.tiny <= extent <= single.max:
        raise _out_of_precision(path)
    return CoarseVolume(data, stride, header.shape, header.spacing_mm, header.axcodes)


def _out_of_precision(path: Path) -> ImageError:
    then = "divide them by their maximum"
    return ImageError("the range of its voxels is beyond single precision", path, then)


def _sum(block: np.ndarray, layout: Layout) -> float:
    """Return the sum of the voxels as stored, those that are not finite as `_values` has them."""
    if block.dtype.kind in "iu":
        return float(block.sum(dtype=np.int64 if block.dtype.itemsize < 8 else np.float64))
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(block.sum(dtype=np.float64))
    return total if math.isfinite(total) else float(_finite(block, layout).sum(dtype=np.float64))


def _above(stored: Iterable[np.ndarray], layout: Layout, mean: float) -> RowBits:
    """Return the voxels at or above the mean; `mean` is that of the voxels as stored.

    Scaling keeps their order, or turns it, so it need not be applied.
    """
    bits = RowBits(layout.header.shape)
    width = layout.header.shape[0]
    waiting: list[np.ndarray] = []  # parts of one row that is longer than a block
    row = 0
    for block in stored:
        waiting.append(block)
        if sum(part.size for part in waiting) % width:
            continue
        lines = (np.concatenate(waiting) if len(waiting) > 1 else block).reshape(-1, width)
        waiting = []
        if lines.dtype.kind == "f" and not np.isfinite(lines.sum()):
            lines = _finite(lines, layout)
        bits.set_rows(row, lines >= mean if layout.slope > 0 else lines <= mean)
        row += len(lines)
    return bits


def _finite(stored: np.ndarray, layout: Layout) -> np.ndarray:
    """Return voxels as stored; those that are not finite get the value that is scaled to 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(stored * layout.slope + layout.intercept)
    return np.where(finite, stored, -layout.intercept / layout.slope)


def _keep(
    block: np.ndarray,
    first: int,
    shape: tuple[int, int, int],
    stride: tuple[int, int, int],
    grid_rows: np.ndarray,
) -> None:
    """Copy the voxels of a block that lie on the coarse grid to ``grid_rows``."""
    row, start = divmod(first, shape[0])  # a block starts within a row only if it is a part of it
    lines = block.reshape(-1, min(block.size, shape[0]))
    k, j = np.divmod(np.arange(row, row + len(lines)), shape[1])
    on_grid = np.flatnonzero((j % stride[1] == 0) & (k % stride[2] == 0))
    if not on_grid.size:
        return
    voxels = lines[:, -start % stride[0] :: stride[0]]
    column = -(-start // stride[0])
    width = len(range(0, shape[1], stride[1]))
    rows = k[on_grid] // stride[2] * width + j[on_grid] // stride[1]
    grid_rows[rows, column : column + voxels.shape[1]] = voxels[on_grid]


def _check_varies(path: Path, layout: Layout, max_voxels: int) -> None:
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for block in blocks(path, layout, max_voxels):
        values = _values(block, layout)
        finite = values[np.isfinite(values)]
        if finite.size:
            low, high = min(low, finite.min()), max(high, finite.max())
            if low < high:
                return
    if low > high:
        raise ImageError("has no finite voxel (NaN only)", path, "make it again")
    raise ImageError(f"is constant, all voxels are {low:g}", path, "make it again")


def strides(shape: tuple[int, int, int], points: int) -> tuple[int, int, int]:
    """Return the steps that leave at most `points` voxels on each axis.

    Examples
    --------
    >>> strides((256, 64, 65), 64)
    (4, 1, 2)
    """
    i, j, k = (math.ceil(n / points) for n in shape)
    return (i, j, k)


def _values(stored: np.ndarray, layout: Layout) -> np.ndarray:
    values = stored.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = values * layout.slope + layout.intercept
        return np.ascontiguousarray(values, dtype=np.float32)
