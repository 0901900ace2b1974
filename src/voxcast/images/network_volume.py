"""The input of the network: a volume pooled to a small cube, in canonical axes, with its grid.

Each cell of the cube is a mean over the voxels that lie in it, so nothing falls between samples:
their intensity (from the coarse grid), the share of them at or above the volume's mean intensity,
which is where bias correction and segmentation begin, and the share of them with no darker voxel
within two voxels, which separates thick from thin where the cells do not (both from the native
grid).
Pooling loses how many voxels make a cell, so shape and spacing go with the cube.

A file of them by volume id, ``volumes.npz``, holds no pickled objects.
"""

from __future__ import annotations

import io
import lzma
import tokenize
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ImageError, TableError, one_line
from voxcast.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from voxcast.images.foreground import LineRuns, VoxelBits
    from voxcast.images.volume import CoarseVolume, VolumeContents

POINTS = 32
CHANNELS = ("intensity", "share above the mean", "share within what is above the mean")
# Cells are stored in steps from 0 to this: on record a volume takes a fifth of its 65 kB.
STEPS = 15
TOP_PERCENTILE = 99.5  # of the cells' intensities; brighter cells are as bright
_WINDOW_VOXELS = 2**20
SMALL_VOLUMES = "volumes.npz"
UNREADABLE = (OSError, ValueError, KeyError, IndexError, EOFError, lzma.LZMAError)


def volume_dtype(points: int) -> np.dtype[Any]:
    """Return the type of a small volume: ``maps``, ``shape`` and ``spacing_mm``.

    ``maps`` is uint8, shape (channels, points, points, points), 0 to `STEPS`. Shape and spacing
    are those of the native grid along right, anterior, superior. All zeros is an unknown volume.
    """
    maps = ("maps", "u1", (len(CHANNELS), points, points, points))
    return np.dtype([maps, ("shape", "<i4", (3,)), ("spacing_mm", "<f4", (3,))])


def points_of(volumes: np.ndarray) -> int:
    """Return the cells along each axis of small volumes."""
    return int(volumes.dtype["maps"].shape[-1])


def network_volume(volume: VolumeContents, points: int = POINTS) -> np.ndarray:
    """Return the input of the network.

    Returns
    -------
    numpy.ndarray
        Of `volume_dtype`, without axes.
    """
    from nibabel.orientations import apply_orientation, axcodes2ornt

    coarse = volume.coarse
    turn = axcodes2ornt(tuple(coarse.axcodes))
    intensity = pooled(coarse.data, coarse, points)
    low = float(intensity.min())
    top = float(np.percentile(intensity, TOP_PERCENTILE)) - low
    scaled = np.clip((intensity - low) / (top or 1.0), 0.0, 1.0)
    shares = [
        apply_orientation(_pooled_mask(mask, points), turn)
        for mask in (volume.bright, volume.foreground.eroded)
    ]
    cube = np.zeros((), volume_dtype(points))
    cube["maps"] = np.rint(np.stack([scaled, *shares]) * STEPS)
    axes = turn[:, 0].astype(int)
    cube["shape"][axes] = coarse.shape
    cube["spacing_mm"][axes] = coarse.spacing_mm
    return cube


def pooled(data: np.ndarray, coarse: CoarseVolume, points: int) -> np.ndarray:
    """Return the mean of data on a coarse grid in each cell of a cube, in canonical axes.

    Parameters
    ----------
    data : ndarray
        One value for each voxel of the coarse grid.

    Returns
    -------
    ndarray of float32, shape (points, points, points)
    """
    from nibabel.orientations import apply_orientation, axcodes2ornt

    cube = data.astype(np.float32)
    for axis, (voxels, stride) in enumerate(zip(coarse.shape, coarse.stride, strict=True)):
        # A sample stands for the voxels up to the next one.
        edges = np.minimum(np.arange(cube.shape[axis] + 1) * stride, voxels)
        cube = np.moveaxis(np.tensordot(_shares(edges, points), cube, (1, axis)), 0, axis)
    turned: np.ndarray = apply_orientation(cube, axcodes2ornt(tuple(coarse.axcodes)))
    return turned


def _pooled_mask(mask: VoxelBits | LineRuns, points: int) -> np.ndarray:
    """Return the share of each cell's voxels in a mask, in the axes of the file."""
    i, j, k = (_shares(np.arange(n + 1), points) for n in mask.shape)
    cube = np.zeros((points, points, points), np.float32)  # k, j, i
    step = max(1, _WINDOW_VOXELS // (mask.shape[0] * mask.shape[1]))
    for first in range(0, mask.shape[2], step):
        last = min(first + step, mask.shape[2])
        planes = mask.planes(first, last).astype(np.float32) @ i.T
        planes = np.matmul(j, planes)
        cube += np.tensordot(k[:, first:last], planes, 1)
    return cube.transpose(2, 1, 0)


def _shares(edges: np.ndarray, points: int) -> np.ndarray:
    """Return the share of each cell that each interval covers, shape (points, intervals).

    Parameters
    ----------
    edges : numpy.ndarray
        Ends of the intervals, increasing from 0, in voxels.

    Examples
    --------
    >>> _shares(np.array([0, 2, 4]), 4)[:, 0].tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    cells = np.linspace(0, edges[-1], points + 1)
    starts = np.maximum(cells[:-1, None], edges[None, :-1])
    ends = np.minimum(cells[1:, None], edges[None, 1:])
    shares = np.maximum(ends - starts, 0) * (points / edges[-1])
    return np.asarray(shares, dtype=np.float32)


def network_to_bytes(volume: np.ndarray) -> bytes:
    """Write the input of the network as ``.npy``."""
    buffer = io.BytesIO()
    np.save(buffer, volume, allow_pickle=False)
    return buffer.getvalue()


def network_from_bytes(data: bytes, points: int) -> np.ndarray:
    """Read what `network_to_bytes` wrote of a cube of ``points``.

    Raises
    ------
    ImageError
        Unless it is the ``.npy`` of one volume of `volume_dtype` with a valid grid.
    """
    where, then = "volume", f"send network_to_bytes(network_volume(contents, {points}))"
    dtype, shape, offset = _npy_layout(data)
    if dtype is None or shape != ():
        raise ImageError("not a .npy array of one small volume", where, then)
    if dtype != volume_dtype(points):
        raise ImageError(f"is not a cube of {points} points with its grid", where, then)
    if len(data) - offset != dtype.itemsize:
        raise ImageError("is cut short or too long", where, then)
    volume = np.frombuffer(data, dtype, offset=offset).reshape(()).copy()
    grid = np.concatenate((volume["shape"], volume["spacing_mm"]))
    if not (np.isfinite(grid).all() and (grid > 0).all()) or volume["maps"].max() > STEPS:
        raise ImageError("has a shape or spacing that is none, or cells out of range", where, then)
    return volume


def _npy_layout(data: bytes) -> tuple[np.dtype[Any] | None, tuple[int, ...], int]:
    # The header alone, so that a small message cannot make numpy reserve a large array.
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            return None, (), 0
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    except (
        ValueError,
        EOFError,
        SyntaxError,
        tokenize.TokenError,
    ):  # by numpy, for malformed headers
        return None, (), 0
    return dtype, shape, stream.tell()


def write_small_volumes(path: Path, volumes: Mapping[str, np.ndarray], points: int) -> None:
    """Write small volumes of ``points``, compressed; the same volumes are the same bytes."""
    ids = sorted(volumes)
    stacked = np.array([volumes[key] for key in ids], volume_dtype(points))
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, volume_id=np.array(ids, dtype=str), volumes=stacked)


def read_small_volumes(path: Path, then: str) -> dict[str, np.ndarray]:
    """Return the small volumes of a file by volume id, none without a file; see `read_stacked`."""
    if not path.is_file():
        return {}
    return dict(zip(*read_stacked(path, then), strict=True))


def read_stacked(path: Path, then: str) -> tuple[list[str], np.ndarray]:
    """Return the ids of a file and their small volumes, shape (n,).

    Parameters
    ----------
    then : str
        Next step for the user if it cannot be read.

    Raises
    ------
    TableError
        If it is missing, cannot be read, or was not written by `write_small_volumes`.
    """
    try:
        with np.load(path, allow_pickle=False) as content:
            ids, volumes = content["volume_id"], content["volumes"]
        if volumes.dtype != volume_dtype(points_of(volumes)) or ids.shape != volumes.shape:
            raise ValueError("other fields than maps, shape and spacing_mm")
    except (*UNREADABLE, zipfile.BadZipFile) as error:
        raise TableError(f"cannot be read ({one_line(error)[:120]})", path, then) from None
    return [str(name) for name in ids], volumes


def copy_small_volumes(folder: Path, target: Path, ids: Collection[str]) -> None:
    """Write the small volumes of some ids from one folder into another."""
    volumes = read_small_volumes(folder / SMALL_VOLUMES, "build the catalogue again")
    chosen = {key: volume for key, volume in volumes.items() if key in ids}
    if chosen:
        points = points_of(next(iter(chosen.values())))
        write_small_volumes(target / SMALL_VOLUMES, chosen, points)
