"""The grid of the network, the tiles that cover it, the vote that joins them, and the tissues.

Grid and tiles are SLANT's (172 x 220 x 156 voxels of 1 mm, 27 tiles of 96 x 128 x 88) at half its
resolution, and 12 mm higher, because the brain of MNI152 fills 154 mm.
"""

from __future__ import annotations

import itertools

import numpy as np
from nibabel.affines import from_matvec

SPACING_MM = 2.0
SHAPE = (86, 110, 84)
LOW_MM = (-85.0, -126.0, -78.0)  # centre of the first voxel: right, anterior, superior, MNI152
# Voxels to millimetres in MNI152 space.
AFFINE = from_matvec(np.diag([SPACING_MM] * 3), LOW_MM)
TILE = (48, 64, 48)
TISSUES = ("background", "csf", "gm", "wm")  # the label of a tissue is its index

Tile = tuple[slice, slice, slice]


def tiles(per_axis: int) -> list[Tile]:
    """Return the tiles of the grid, `per_axis` ** 3 evenly overlapping boxes of shape `TILE`.

    Two and more for each axis cover the grid.
    """
    axes = [
        [slice(round(n), round(n) + tile) for n in np.linspace(0, size - tile, per_axis)]
        for size, tile in zip(SHAPE, TILE, strict=True)
    ]
    return [(i, j, k) for i, j, k in itertools.product(*axes)]


def fuse(labels: list[np.ndarray], places: list[Tile], classes: int) -> np.ndarray:
    """Return the majority vote of overlapping tiles; ties go to the lower label.

    Parameters
    ----------
    labels : list of numpy.ndarray
        The label of each voxel of each tile, uint8 of the tile's shape.
    places : list of Tile
        Positions of the tiles; voxels outside all tiles get label 0.
    classes : int
        Number of labels, 0 included.

    Returns
    -------
    numpy.ndarray
        uint8 of `SHAPE`.
    """
    votes = np.zeros((classes, *SHAPE), np.uint8)
    for tile, place in zip(labels, places, strict=True):
        for label in range(classes):
            votes[(label, *place)] += tile == label
    return np.asarray(votes.argmax(axis=0).astype(np.uint8))
