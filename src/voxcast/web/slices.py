"""Three views of a volume: the slices through its centre, as a reader of images sees them.

Right is on the right, superior on top, anterior on top of the axial view and on the right of the
sagittal one. The voxels are read in blocks, and every k-th one of a slice is taken, so that memory
does not depend on the volume.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from voxcast.images.header import ImageHeader
    from voxcast.images.volume import Volume

PLANES = ("sagittal", "coronal", "axial")  # across the first, second, third axis of RAS
MAX_PIXELS = 256  # along an edge
WINDOW_PERCENTILES = (1.0, 99.5)  # from black to white: a few bright voxels darken nothing


@dataclass(frozen=True, eq=False)
class Slice:
    """One view.

    Attributes
    ----------
    plane : str
        One of `PLANES`.
    pixels : ndarray of uint8, shape (height, width)
        The first row is the upper one.
    spacing_mm : tuple of float
        Width and height of a pixel.
    """

    plane: str
    pixels: np.ndarray
    spacing_mm: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON has it, with its picture as PNG in base64."""
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(self.pixels).save(file, "PNG")
        height, width = self.pixels.shape
        return {
            "plane": self.plane, "width": width, "height": height, "spacing_mm": self.spacing_mm,
            "png": base64.b64encode(file.getvalue()).decode(),
        }  # fmt: skip


def middle_slices(volume: Volume, max_voxels: int) -> list[Slice]:
    """Return the views of a volume; none where a row of voxels is longer than a block.

    Raises
    ------
    ImageError
        See `voxcast.images.volume.Volume.blocks`.
    """
    shape = volume.header.shape
    if volume.block_voxels % shape[0]:
        return []
    stride = np.array([math.ceil(n / MAX_PIXELS) for n in shape])
    values = [volume.values(part) for part in _planes(volume, stride, max_voxels)]
    finite = np.concatenate([part[np.isfinite(part)] for part in values])
    low, high = np.percentile(finite, WINDOW_PERCENTILES) if finite.size else (0.0, 1.0)
    return [
        _slice(part, axis, volume.header, stride, (low, high)) for axis, part in enumerate(values)
    ]


def _planes(volume: Volume, stride: np.ndarray, max_voxels: int) -> tuple[np.ndarray, ...]:
    """Return the middle planes across i, j and k as stored, each with one axis of length 1."""
    ni, nj, nk = volume.header.shape
    di, dj, dk = (int(step) for step in stride)
    middle_i, middle_j, middle_k = ni // 2, nj // 2, nk // 2
    across_i: list[np.ndarray] = []
    across_j: list[np.ndarray] = []
    across_k: list[np.ndarray] = []
    row = 0
    for block in volume.blocks(max_voxels):
        lines = block.reshape(-1, ni)
        k, j = np.divmod(np.arange(row, row + len(lines)), nj)
        across_i.append(lines[(j % dj == 0) & (k % dk == 0), middle_i])
        across_j.append(lines[(j == middle_j) & (k % dk == 0), ::di])
        across_k.append(lines[(k == middle_k) & (j % dj == 0), ::di])
        row += len(lines)
    width, height, depth = (len(range(0, n, step)) for n, step in ((ni, di), (nj, dj), (nk, dk)))
    return (
        np.concatenate(across_i).reshape(depth, height, 1).transpose(2, 1, 0),
        np.concatenate(across_j).reshape(depth, 1, width).transpose(2, 1, 0),
        np.concatenate(across_k).reshape(1, height, width).transpose(2, 1, 0),
    )


def _slice(
    values: np.ndarray,
    axis: int,
    header: ImageHeader,
    stride: np.ndarray,
    window: tuple[float, float],
) -> Slice:
    """Return the view of a plane across an axis of the file."""
    from nibabel.orientations import apply_orientation, axcodes2ornt

    turn = axcodes2ornt(tuple(header.axcodes))
    low, high = window
    with np.errstate(over="ignore", invalid="ignore"):
        grey = np.nan_to_num(255 * np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0))
    turned = apply_orientation(grey.round().astype(np.uint8), turn)
    spacing_mm = np.empty(3)
    spacing_mm[turn[:, 0].astype(int)] = np.array(header.spacing_mm) * stride
    across = int(turn[axis, 0])
    right, up = (other for other in range(3) if other != across)
    return Slice(
        PLANES[across],
        np.ascontiguousarray(np.squeeze(turned, across).T[::-1]),
        (float(spacing_mm[right]), float(spacing_mm[up])),
    )
