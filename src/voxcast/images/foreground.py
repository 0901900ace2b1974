"""The foreground of a volume on its native grid, as ANTs' ``get_mask`` finds it.

The voxels of this mask are those that bias correction and segmentation work on, so they decide how
long these run. On a coarser grid nobody can tell whether two voxels of erosion part scalp from
brain, and that decides the mask.

The steps are those of antspyx 0.6.3: threshold at the mean, erosion, largest piece, dilation, and
holes filled, where a hole is every piece of the background but the largest. Equally large pieces
are all kept. Where no piece of 50 voxels is left by the ball of radius 2, or the mask would be the
whole grid, the ball of radius 1 is tried, with all pieces whatever their size, and then none
(``get_mask``, and ``iMathGetLargestComponent`` of ANTs, whose mask is then constant).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.images.line_runs import LineRuns, line_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Planes = Callable[[int, int], np.ndarray]

RADII_VOXELS = (2, 1)
MIN_PIECE_VOXELS = 50  # ANTs drops smaller pieces after the first erosion
WINDOW_VOXELS = 2 * 2**20


@dataclass(frozen=True)
class Foreground:
    """Size and form of the foreground mask of a volume.

    Attributes
    ----------
    voxels, above_mean_voxels : int
        In the mask, and at or above the mean intensity.
    core_voxels : int
        In the pieces after erosion from which the mask was grown; 0 if there was no erosion.
    box_voxels : tuple of int
        Size of the bounding box along each axis.
    faces : tuple of int
        Sides of voxels between mask and background, across each axis.
    coarse : numpy.ndarray
        The mask at every k-th voxel, bool, as the data of `voxcast.images.volume.CoarseVolume`.
    eroded : LineRuns
        Voxels of which all in the ball of radius 2 are at or above the mean intensity.
    """

    voxels: int
    above_mean_voxels: int
    core_voxels: int
    box_voxels: tuple[int, int, int]
    faces: tuple[int, int, int]
    coarse: np.ndarray
    eroded: LineRuns


class RowBits:
    """Which voxels of a grid are at or above a threshold, one bit for each.

    Parameters
    ----------
    shape : tuple of int
        Of the grid, (i, j, k).
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self._bits = np.zeros((shape[2] * shape[1], -(-shape[0] // 8)), np.uint8)

    def set_rows(self, first: int, rows: np.ndarray) -> None:
        """Set rows of the first axis, from number ``first`` in the order of the file."""
        self._bits[first : first + len(rows)] = np.packbits(rows, axis=1)

    def planes(self, first: int, last: int) -> np.ndarray:
        """Return planes ``first`` to ``last - 1`` of the last axis, bool, shape (planes, j, i)."""
        i, j, _ = self.shape
        bits = np.unpackbits(self._bits[first * j : last * j], axis=1, count=i)
        return bits.view(bool).reshape(last - first, j, i)

    @property
    def voxels(self) -> int:
        """Number of voxels that are set."""
        return sum(
            int(np.count_nonzero(planes)) for _, planes in _windows(self.planes, self.shape)
        )


def foreground(above_mean: RowBits, stride: tuple[int, int, int]) -> Foreground:
    """Return the foreground of a volume.

    Parameters
    ----------
    above_mean : RowBits
        Voxels at or above the mean intensity; at least one is, and at least one is not.
    stride : tuple of int
        Steps of the coarse grid.
    """
    eroded = _moved(above_mean.planes, above_mean.shape, RADII_VOXELS[0], np.logical_and)
    mask, core_voxels = _mask(above_mean, eroded)
    faces = np.zeros(3, np.int64)
    coarse: list[np.ndarray] = []
    for first, planes in _windows(mask.planes, mask.shape, before=1):
        inner = planes[min(first, 1) :]
        faces[0] += np.count_nonzero(inner[:, :, 1:] != inner[:, :, :-1])
        faces[1] += np.count_nonzero(inner[:, 1:] != inner[:, :-1])
        faces[2] += np.count_nonzero(planes[1:] != planes[:-1])
        coarse.append(inner[-first % stride[2] :: stride[2], :: stride[1], :: stride[0]])
    across_i, across_j, across_k = (int(count) for count in faces)
    return Foreground(
        voxels=mask.voxels,
        above_mean_voxels=above_mean.voxels,
        core_voxels=core_voxels,
        box_voxels=mask.bounds(),
        faces=(across_i, across_j, across_k),
        coarse=np.concatenate(coarse).transpose(2, 1, 0),
        eroded=eroded,
    )


def _mask(above_mean: RowBits, eroded: LineRuns) -> tuple[LineRuns, int]:
    """Return the mask and the number of voxels from which it was grown."""
    for radius in RADII_VOXELS:
        if radius == RADII_VOXELS[0]:
            core = eroded.largest_pieces(MIN_PIECE_VOXELS)
        else:
            core = _moved(above_mean.planes, above_mean.shape, radius, np.logical_and)
        grown = _moved(core.planes, core.shape, radius, np.logical_or)
        mask = grown.complement().largest_piece().complement()
        if 0 < mask.voxels < math.prod(mask.shape):
            return mask, core.voxels
    return _moved(above_mean.planes, above_mean.shape, 0, np.logical_or), 0


def _moved(
    planes: Planes, shape: tuple[int, int, int], radius: int, combine: np.ufunc
) -> LineRuns:
    """Return the runs of a mask after erosion (``logical_and``) or dilation (``logical_or``)."""
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    for first, window in _windows(planes, shape, before=radius, after=radius):
        low = min(first, radius)
        count = _window_planes(shape)
        ball = _combined(window, radius, combine)[low : low + count]
        for edges, of_window in zip((starts, ends), line_runs(ball, first), strict=True):
            edges.append(of_window)
    return LineRuns(shape, np.concatenate(starts), np.concatenate(ends))


def _combined(planes: np.ndarray, radius: int, combine: np.ufunc) -> np.ndarray:
    """Combine each voxel with those around it; what is outside of the grid does not count.

    ITK's ball of radius r holds the offsets of at most r + 1/2 voxels. For 2 these are the cube of
    27 moved to its six sides, for 1 three squares of nine: both are made of steps along one axis.
    """
    if radius == 0:
        return planes
    if radius == 2:
        cube = planes
        for axis in range(3):
            cube = _with_neighbours(cube, (axis,), combine)
        return _with_neighbours(cube, (0, 1, 2), combine)
    ball = planes.copy()
    for axes in ((0, 1), (0, 2), (1, 2)):
        square = planes
        for axis in axes:
            square = _with_neighbours(square, (axis,), combine)
        combine(ball, square, out=ball)
    return ball


def _with_neighbours(mask: np.ndarray, axes: tuple[int, ...], combine: np.ufunc) -> np.ndarray:
    result = mask.copy()
    for axis in axes:
        low: list[slice] = [slice(None)] * 3
        high: list[slice] = [slice(None)] * 3
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        combine(result[tuple(low)], mask[tuple(high)], out=result[tuple(low)])
        combine(result[tuple(high)], mask[tuple(low)], out=result[tuple(high)])
    return result


def _window_planes(shape: tuple[int, int, int]) -> int:
    return max(4, WINDOW_VOXELS // (shape[0] * shape[1]))


def _windows(
    planes: Planes, shape: tuple[int, int, int], before: int = 0, after: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of a window's first plane and its planes, with some before and after it."""
    step, count = _window_planes(shape), shape[2]
    for first in range(0, count, step):
        last = min(first + step, count)
        yield first, planes(max(first - before, 0), min(last + after, count))
