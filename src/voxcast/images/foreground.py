"""The foreground of a volume on its native grid, as ANTs' ``get_mask`` finds it.

Bias correction and segmentation work on the voxels of this mask, so it decides how long they run.
A coarser grid does not show whether two voxels of erosion separate scalp from brain, and that
decides the mask.

The steps follow antspyx 0.6.3: threshold at the mean, erosion, largest piece, dilation, and
holes filled, where a hole is every piece of the background but the largest. Equally large pieces
are all kept. Where no piece of 50 voxels is left by the ball of radius 2, or the mask would be the
whole grid, the ball of radius 1 is tried, with all pieces, small ones too, and then none
(``get_mask``, and ``iMathGetLargestComponent`` of ANTs, whose mask is then constant).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
        In the pieces after erosion from which the mask was grown; 0 without erosion.
    box_voxels : tuple of int
        Size of the bounding box along each axis.
    faces : tuple of int
        Sides of voxels between mask and background, across each axis.
    coarse : numpy.ndarray
        The mask at every k-th voxel, bool, as the data of `voxcast.images.volume.CoarseVolume`.
    eroded : LineRuns
        Voxels whose neighbours in the ball of radius 2 are all at or above the mean intensity.
    """

    voxels: int
    above_mean_voxels: int
    core_voxels: int
    box_voxels: tuple[int, int, int]
    faces: tuple[int, int, int]
    coarse: np.ndarray
    eroded: LineRuns


class VoxelBits:
    """Which voxels of a grid are at or above a threshold, one bit for each.

    Parameters
    ----------
    shape : tuple of int
        Of the grid, (i, j, k).
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape
        self._bits = np.zeros(-(-math.prod(shape) // 8), np.uint8)

    def set(self, first: int, voxels: np.ndarray) -> None:
        """Set voxels in the order of the file, from position ``first``, a multiple of 8."""
        bits = np.packbits(voxels)
        self._bits[first // 8 : first // 8 + len(bits)] = bits

    def planes(self, first: int, last: int) -> np.ndarray:
        """Return planes ``first`` to ``last - 1`` of the last axis, bool, shape (planes, j, i)."""
        i, j, _ = self.shape
        start, end = first * i * j, last * i * j
        bits = np.unpackbits(self._bits[start // 8 : -(-end // 8)])[start % 8 :]
        return bits[: end - start].view(bool).reshape(last - first, j, i)

    @property
    def voxels(self) -> int:
        """Number of voxels that are set."""
        return int(np.bitwise_count(self._bits).sum())


def foreground(above_mean: VoxelBits, stride: tuple[int, int, int]) -> Foreground:
    """Return the foreground of a volume.

    Parameters
    ----------
    above_mean : VoxelBits
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


def _mask(above_mean: VoxelBits, eroded: LineRuns) -> tuple[LineRuns, int]:
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
    """Combine each voxel with those around it; voxels outside the grid do not count.

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


Shape = tuple[int, int, int]


@dataclass(frozen=True)
class LineRuns:
    """Runs of voxels along the first axis, in the order of the file.

    Attributes
    ----------
    shape : tuple of int
        Of the grid, (i, j, k).
    starts, ends : numpy.ndarray
        Shape (runs,), int64, ``starts < ends``, both increasing. A voxel has the position
        ``(k * shape[1] + j) * (shape[0] + 1) + i``: a position after each row belongs to no voxel,
        so a run never continues in the next row.
    """

    shape: Shape
    starts: np.ndarray
    ends: np.ndarray

    @property
    def voxels(self) -> int:
        """Number of voxels in the mask."""
        return int((self.ends - self.starts).sum())

    def planes(self, first: int, last: int) -> np.ndarray:
        """Return planes ``first`` to ``last - 1`` of the last axis, bool, shape (planes, j, i)."""
        i, j, _ = self.shape
        plane = j * (i + 1)
        a, b = np.searchsorted(self.starts, (first * plane, last * plane))
        steps = np.zeros((last - first) * plane + 1, np.int8)
        steps[self.starts[a:b] - first * plane] = 1
        steps[self.ends[a:b] - first * plane] = -1
        inside = np.cumsum(steps[:-1], dtype=np.int8).view(bool)
        return np.ascontiguousarray(inside.reshape(last - first, j, i + 1)[:, :, :i])

    def complement(self) -> LineRuns:
        """Return the runs of the voxels that are not in the mask."""
        rows = np.arange(self.shape[1] * self.shape[2], dtype=np.int64) * (self.shape[0] + 1)
        starts = np.sort(np.concatenate((rows, self.ends)))
        ends = np.sort(np.concatenate((self.starts, rows + self.shape[0])))
        filled = starts < ends
        return LineRuns(self.shape, starts[filled], ends[filled])

    def largest_piece(self) -> LineRuns:
        """Return the largest 6-connected piece; of equal ones the first."""
        if not len(self.starts):
            return self
        pieces, voxels = self._pieces()
        return self._only(pieces == voxels.argmax())

    def largest_pieces(self, min_voxels: int) -> LineRuns:
        """Return all 6-connected pieces of the size of the largest, none if it is too small.

        Parameters
        ----------
        min_voxels : int
            The size from which a piece counts.
        """
        if not len(self.starts):
            return self
        pieces, voxels = self._pieces()
        return self._only(voxels[pieces] == max(voxels.max(), min_voxels))

    def bounds(self) -> tuple[int, int, int]:
        """Return the size of the bounding box in voxels along each axis."""
        i, j, _ = self.shape
        first = self.starts % (i + 1)
        last = self.ends - self.starts + first
        plane, line = np.divmod(self.starts // (i + 1), j)
        return (
            int(np.ptp((first.min(), last.max()))),
            int(np.ptp(line)) + 1,
            int(np.ptp(plane)) + 1,
        )

    def _only(self, runs: np.ndarray) -> LineRuns:
        return LineRuns(self.shape, self.starts[runs], self.ends[runs])

    def _pieces(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the connected piece of each run, from 0, and voxels of each piece.

        Pieces are numbered in the order of their first runs.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        i, j, _ = self.shape
        in_plane = np.flatnonzero(self.starts // (i + 1) % j != j - 1)
        pairs = (
            self._overlaps(in_plane, i + 1),
            self._overlaps(np.arange(len(self.starts)), (i + 1) * j),
        )
        upper, lower = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
        size = len(self.starts)
        graph = coo_array((np.ones(len(upper), np.int8), (upper, lower)), (size, size))
        pieces: np.ndarray = connected_components(graph, directed=False)[1]
        return pieces, np.bincount(pieces, weights=self.ends - self.starts)

    def _overlaps(self, runs: np.ndarray, distance: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of a run and one that touches it ``distance`` positions further on."""
        first = np.searchsorted(self.ends, self.starts[runs] + distance, "right")
        count = np.searchsorted(self.starts, self.ends[runs] + distance, "left") - first
        before = np.cumsum(count) - count
        touched = np.arange(count.sum()) + np.repeat(first - before, count)
        return np.repeat(runs, count), touched


def line_runs(planes: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the runs of some planes, the first of which is plane ``first``.

    Parameters
    ----------
    planes : numpy.ndarray
        Shape (planes, j, i), bool.

    Examples
    --------
    >>> starts, ends = line_runs(np.array([[[True, True, False], [False, False, True]]]))
    >>> starts.tolist(), ends.tolist()
    ([0, 6], [2, 7])
    """
    *rows, i = planes.shape
    padded = np.zeros((math.prod(rows), i + 1), bool)
    padded[:, :i] = planes.reshape(-1, i)
    flat = padded.reshape(-1)
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    if flat.size and flat[0]:
        edges = np.concatenate(([0], edges))
    edges = edges + first * rows[1] * (i + 1)
    return edges[::2], edges[1::2]
