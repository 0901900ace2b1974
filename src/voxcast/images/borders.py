"""What is removed from a varied head: face, neck, background and borders are zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from voxcast.images.variety import Variety

_AIR = 0.004  # intensity of air, with the tails of interpolation
_FROM_BRAIN_MM = 4.0  # a face is not removed nearer to the brain's hull


def removes_tissue(variety: Variety) -> bool:
    """Tell whether voxels are zero depending on where in the head they lie."""
    return bool(variety.background == "zero" or variety.deface_mm or variety.neck_mm)


def in_place(
    points_mm: np.ndarray, clean: np.ndarray, hull_mm: np.ndarray, variety: Variety
) -> np.ndarray:
    """Return which voxels are retained, bool.

    Parameters
    ----------
    points_mm : numpy.ndarray
        Where the voxels lie in the template, in reversed axis order, shape ``(..., 3)``.
    clean, hull_mm : numpy.ndarray
        Intensity before the acquisition, and distance from the brain's hull.
    """
    superior_mm, anterior_mm = points_mm[..., 0], points_mm[..., 1]
    retained = np.ones(clean.shape, bool)
    if variety.background == "zero":
        retained &= clean > _AIR
    if variety.deface_mm:
        tilt = np.deg2rad(variety.deface_deg)
        before_mm = np.cos(tilt) * anterior_mm - np.sin(tilt) * superior_mm - variety.deface_mm
        retained &= (before_mm < 0) | (hull_mm < _FROM_BRAIN_MM)
    if variety.neck_mm:
        retained &= superior_mm > variety.neck_mm
    return retained


def zero_borders(image: np.ndarray, shares: tuple[float, ...]) -> None:
    """Set the borders of an image to zero; `shares` are of the first and last end of each axis."""
    for axis, (first, last) in enumerate(zip(shares[::2], shares[1::2], strict=True)):
        length = image.shape[axis]
        along = np.moveaxis(image, axis, 0)
        along[: round(first * length)] = 0
        along[length - round(last * length) :] = 0
