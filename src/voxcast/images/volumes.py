"""One volume, reduced: hashed and subsampled in one pass, resized for the network.

What is computed from them is in `voxcast.images.characteristics`.
"""

from __future__ import annotations

import hashlib
import io
import math
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError
from voxcast.images.headers import ImageHeader, Layout, read_layout
from voxcast.images.voxels import MAX_VOXELS, blocks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

POINTS = 64
MAX_COARSE_BYTES = 4 * 2**20


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
    """What one pass over the voxels of a file gives."""

    layout: Layout
    coarse: CoarseVolume
    voxel_sha256: str


def read_volume(
    path: str | os.PathLike[str], points: int = POINTS, max_voxels: int = MAX_VOXELS
) -> VolumeReading:
    """Read a volume once, in bounded memory: its coarse grid and the hash of its content.

    The hash is of voxels, type, shape, scaling and affine (to 1e-4).

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
    coarse = _coarse(path, layout, points, max_voxels, lambda block: digest.update(block.data))
    return VolumeReading(layout, coarse, digest.hexdigest())


def load_coarse(
    path: str | os.PathLike[str], points: int = POINTS, max_voxels: int = MAX_VOXELS
) -> CoarseVolume:
    """Read a volume and keep every k-th voxel, so that no axis has more than `points`.

    Non-finite voxels become 0. Memory does not depend on the size of the volume.

    Raises
    ------
    ImageError
        As `voxcast.images.headers.read_header` and `voxcast.images.voxels.blocks`; and if all
        voxels are NaN, or all are equal.
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
    return CoarseVolume(data, stride, header.shape, header.spacing_mm, header.axcodes)


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


def network_volume(coarse: CoarseVolume, points: int = 32) -> np.ndarray:
    """Return the input of the network: canonical axes, a cube, zero mean, unit variance.

    Returns
    -------
    numpy.ndarray
        float16, shape ``(points, points, points)``.
    """
    import torch
    import torchio

    affine = _affine(coarse)
    image = torchio.ScalarImage(tensor=torch.from_numpy(coarse.data[None].copy()), affine=affine)
    prepare = torchio.Compose(
        [torchio.ToCanonical(), torchio.Resize(points), torchio.ZNormalization()]
    )
    cube: np.ndarray = prepare(image).data[0].numpy()
    return np.clip(cube, -6e4, 6e4).astype(np.float16)


def coarse_to_bytes(coarse: CoarseVolume) -> bytes:
    """Write a coarse volume as ``.npy`` of uint16, its lowest value 0 and its highest 65535.

    Neither characteristics nor the network depend on offset and scale. float16 would be as small
    but rounds bright voxels by 1/4000, which shows in the noise of a clean image.
    """
    low, high = float(coarse.data.min()), float(coarse.data.max())
    scaled = (coarse.data.astype(np.float64) - low) * (65535 / ((high - low) or 1.0))
    buffer = io.BytesIO()
    np.save(buffer, np.rint(scaled).astype(np.uint16), allow_pickle=False)
    return buffer.getvalue()


def coarse_from_bytes(data: bytes, header: ImageHeader, points: int = POINTS) -> CoarseVolume:
    """Read what `coarse_to_bytes` wrote of the volume that `header` describes.

    Raises
    ------
    ImageError
        If it is larger than 4 MiB, not a ``.npy`` of real numbers, or does not fit the header.
    """
    where, then = "volume", "send what coarse_to_bytes returns for this volume"
    if len(data) > MAX_COARSE_BYTES:
        raise ImageError(f"{len(data)} bytes, at most {MAX_COARSE_BYTES} are read", where, then)
    stride = strides(header.shape, points)
    expected = tuple(len(range(0, n, k)) for n, k in zip(header.shape, stride, strict=True))
    dtype, shape, fortran, offset = _npy_layout(data)
    if dtype is None or dtype.kind not in "iuf":
        raise ImageError("not a .npy array of numbers", where, then)
    if shape != expected:
        raise ImageError(f"its shape is {shape}, the header declares {expected}", where, then)
    if len(data) - offset != math.prod(shape) * dtype.itemsize:
        raise ImageError("is cut short or too long", where, then)
    array = np.frombuffer(data, dtype, offset=offset).reshape(shape, order="F" if fortran else "C")
    with np.errstate(over="ignore"):
        array = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if np.ptp(array) == 0:
        raise ImageError("is constant", where, then)
    return CoarseVolume(array, stride, header.shape, header.spacing_mm, header.axcodes)


def _npy_layout(data: bytes) -> tuple[np.dtype[Any] | None, tuple[int, ...], bool, int]:
    # The header alone, so that a small message cannot make numpy reserve a large array.
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            return None, (), False, 0
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (
        ValueError,
        EOFError,
        SyntaxError,
        tokenize.TokenError,
    ):  # by numpy, for malformed headers
        return None, (), False, 0
    return dtype, shape, fortran, stream.tell()


def _values(stored: np.ndarray, layout: Layout) -> np.ndarray:
    values = stored.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = values * layout.slope + layout.intercept
        return np.ascontiguousarray(values, dtype=np.float32)


def _affine(coarse: CoarseVolume) -> np.ndarray:
    from nibabel.orientations import axcodes2ornt, inv_ornt_aff

    steps = [mm * k for mm, k in zip(coarse.spacing_mm, coarse.stride, strict=True)]
    ornt = axcodes2ornt(tuple(coarse.axcodes))
    # inv_ornt_aff maps canonical voxels to native ones; we need native voxels to the world.
    to_canonical = np.linalg.inv(inv_ornt_aff(ornt, coarse.data.shape))
    canonical_steps = np.zeros(3)
    canonical_steps[ornt[:, 0].astype(int)] = steps
    return np.diag([*canonical_steps, 1.0]) @ to_canonical
