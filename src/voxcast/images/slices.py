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

from voxcast.images.header import MAX_VOXELS
from voxcast.images.volume import Picked

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

    def png(self) -> str:
        """Return the picture as PNG in base64."""
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(self.pixels).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()

    def as_json(self) -> dict[str, Any]:
        """Return the view as JSON has it, with its picture as `png` writes it."""
        height, width = self.pixels.shape
        return {
            "plane": self.plane, "width": width, "height": height, "spacing_mm": self.spacing_mm,
            "png": self.png(),
        }  # fmt: skip


def middle_slices(volume: Volume, max_voxels: int = MAX_VOXELS) -> list[Slice]:
    """Return the views of a volume.

    Raises
    ------
    ImageError
        See `voxcast.images.volume.Volume.blocks`.
    """
    shape = volume.header.shape
    stride = np.array([math.ceil(n / MAX_PIXELS) for n in shape])
    planes = []
    for axis, size in enumerate(shape):
        axes = [np.arange(0, n, step) for n, step in zip(shape, stride, strict=True)]
        axes[axis] = np.array([size // 2])
        planes.append(Picked(volume, axes))
    for first, block in volume.blocks(max_voxels):
        for plane in planes:
            plane.add(first, block)
    values = [volume.values(plane.voxels) for plane in planes]
    finite = np.concatenate([part[np.isfinite(part)] for part in values])
    low, high = np.percentile(finite, WINDOW_PERCENTILES) if finite.size else (0.0, 1.0)
    return [
        _slice(part, axis, volume.header, stride, (low, high)) for axis, part in enumerate(values)
    ]


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
