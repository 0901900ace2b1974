"""The grid of the network, the tiles that cover it, the vote that joins them, and the tissues.

Grid and tiles are SLANT's (172 x 220 x 156 voxels of 1 mm, 27 tiles of 96 x 128 x 88) at half its
resolution, and 12 mm higher, because the brain of MNI152 fills 154 mm. Needs numpy only.
"""

from __future__ import annotations

import itertools

import numpy as np

SPACING_MM = 2.0
SHAPE = (86, 110, 84)
LOW_MM = (-85.0, -126.0, -78.0)  # centre of the first voxel: right, anterior, superior, MNI152
TILE = (48, 64, 48)
TISSUES = ("background", "csf", "gm", "wm")  # the label of a tissue is its index

Tile = tuple[slice, slice, slice]


def grid_affine() -> np.ndarray:
    """Return the affine of the grid, voxels to millimetres in MNI152 space."""
    affine = np.diag([SPACING_MM, SPACING_MM, SPACING_MM, 1.0])
    affine[:3, 3] = LOW_MM
    return affine


def starts(size: int, tile: int, count: int) -> list[int]:
    """Return the starts of `count` tiles that cover an axis, if they can, and overlap evenly.

    Examples
    --------
    >>> starts(172, 96, 3), starts(220, 128, 3), starts(156, 88, 3)
    ([0, 38, 76], [0, 46, 92], [0, 34, 68])
    """
    return [round(start) for start in np.linspace(0, size - tile, count)]


def tiles(per_axis: int) -> list[Tile]:
    """Return the tiles of the grid, `per_axis` ** 3 overlapping boxes of shape `TILE`."""
    axes = [
        [slice(start, start + tile) for start in starts(size, tile, per_axis)]
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


def volumes_ml(labels: np.ndarray, voxel_ml: float) -> dict[str, float]:
    """Return the volume of each tissue in millilitres, by ``<tissue>_ml``.

    Parameters
    ----------
    labels : ndarray of int
        A label for each voxel, of any shape.
    voxel_ml : float
        Volume of a voxel.
    """
    counts = np.bincount(labels.astype(np.int64).ravel(), minlength=len(TISSUES))
    return {f"{name}_ml": float(n) * voxel_ml for name, n in zip(TISSUES, counts, strict=True)}
