"""A mask of a grid as runs: where each row of voxels enters and leaves it.

A head has two or three runs a row, so its runs take a hundredth of the memory of its voxels, and
its connected pieces are found without a label for every voxel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
    """Return starts and ends of the runs of some planes, the first of which has the number given.

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
