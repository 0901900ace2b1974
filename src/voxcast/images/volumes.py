"""Voxels of one volume: read once, subsampled on a coarse grid, resized for the network.

What is computed from them is in `voxcast.images.characteristics`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tokenize
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, one_line
from voxcast.images.headers import COPY_AGAIN, ImageHeader, Layout, read_layout

if TYPE_CHECKING:
    import os

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
class LoadedVolume:
    """All voxels as stored; their value is ``array * layout.slope + layout.intercept``."""

    array: np.ndarray
    layout: Layout
    path: Path


def load(path: str | os.PathLike[str]) -> LoadedVolume:
    """Read a volume once; `coarsen` and `voxel_sha256` are computed from the result.

    Raises
    ------
    ImageError
        As `voxcast.images.headers.read_header`, and for damaged compressed voxels.
    """
    path = Path(path)
    layout = read_layout(path)
    try:
        if path.suffix == ".gz":
            # Not through nibabel, which stops before gzip's checksum and lets damage pass.
            with gzip.open(path) as stream:
                raw = stream.read(layout.end_bytes)
                while stream.read(1 << 20):
                    pass
        else:
            raw = path.read_bytes()
        flat: np.ndarray = np.frombuffer(
            raw, layout.dtype, layout.header.voxels, layout.offset_bytes
        )
    except (EOFError, zlib.error, OSError, ValueError) as error:
        raise ImageError(f"voxels are damaged ({one_line(error)})", path, COPY_AGAIN) from None
    return LoadedVolume(flat.reshape(layout.header.shape, order="F"), layout, path)


def load_coarse(path: str | os.PathLike[str], points: int = POINTS) -> CoarseVolume:
    """Read a volume and keep every k-th voxel, so that no axis has more than `points`."""
    return coarsen(load(path), points)


def coarsen(volume: LoadedVolume, points: int = POINTS) -> CoarseVolume:
    """Keep every k-th voxel of a loaded volume; non-finite ones become 0.

    Raises
    ------
    ImageError
        If all voxels are NaN, or all are equal.
    """
    header = volume.layout.header
    stride = strides(header.shape, points)
    data = _values(volume, tuple(slice(None, None, step) for step in stride))
    if not np.isfinite(data).any() or np.ptp(data[np.isfinite(data)]) == 0:
        # Rare, so every voxel is checked before a volume is rejected.
        values = _values(volume, (slice(None),) * 3)
        finite = values[np.isfinite(values)]
        if not finite.size:
            raise ImageError("has no finite voxel (NaN only)", volume.path, "make it again")
        if np.ptp(finite) == 0:
            raise ImageError(
                f"is constant, all voxels are {finite[0]:g}", volume.path, "make it again"
            )
    data = np.nan_to_num(data, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
    return CoarseVolume(data, stride, header.shape, header.spacing_mm, header.axcodes)


def strides(shape: tuple[int, int, int], points: int) -> tuple[int, int, int]:
    """Return the steps that leave at most `points` voxels on each axis.

    Examples
    --------
    >>> strides((256, 64, 65), 64)
    (4, 1, 2)
    """
    i, j, k = (math.ceil(n / points) for n in shape)
    return (i, j, k)


def voxel_sha256(volume: LoadedVolume) -> str:
    """Hash the content of a volume: voxels, type, shape and affine (to 1e-4)."""
    layout = volume.layout
    affine = (layout.affine.round(4) + 0.0).tolist()  # + 0.0 makes -0.0 and 0.0 equal
    facts = (layout.header.shape, layout.dtype.str, layout.slope, layout.intercept, affine)
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(volume.array.ravel(order="K").data)  # a view: voxels lie in file order
    return digest.hexdigest()


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


def _values(volume: LoadedVolume, index: tuple[slice, ...]) -> np.ndarray:
    values = volume.array[index].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        values = values * volume.layout.slope + volume.layout.intercept
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
