"""The brain of a varied head: intensities by tissue, sulci, and vessels.

The template's tissues are those of an average brain, in which folds are blurred away. Sheets of
fluid between two ribbons of cortex take their place near the surface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.images.interpolation import share_below, share_of_sheet

if TYPE_CHECKING:
    from voxcast.images.variety import Variety

_FADING_MM = 8.0  # sulci fade into the template's own tissues over this depth


def tissue_shares(
    priors: np.ndarray,
    depth_mm: np.ndarray,
    sheet_mm: np.ndarray,
    variety: Variety,
    voxel_mm: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of fluid and of grey matter in voxels of the brain, shape ``(n,)`` each.

    Parameters
    ----------
    priors : numpy.ndarray
        Shares of fluid, grey and white matter in the template, shape ``(3, n)``.
    depth_mm, sheet_mm : numpy.ndarray
        Depth below the hull, and signed distance from the next sulcus, shape ``(n,)``.
    """
    shares = np.maximum(priors, 1e-6)
    shares[0] *= np.float32(variety.ventricle_gain)
    shares /= shares.sum(axis=0)
    if variety.crispness != 1:
        shares **= np.float32(variety.crispness)
        shares /= shares.sum(axis=0)
    fluid, grey = shares[0], shares[1]
    if variety.cortex_mm == 0:
        return fluid, grey
    reach_mm = variety.sulcus_depth_mm
    folded = np.clip((reach_mm + _FADING_MM - depth_mm) / _FADING_MM, 0.0, 1.0)
    half_mm = 0.5 * variety.sulcus_mm * np.clip(1.2 - depth_mm / reach_mm, 0.0, 1.2)
    sulcus = share_of_sheet(half_mm, sheet_mm, voxel_mm)
    walls = share_of_sheet(half_mm + variety.cortex_mm, sheet_mm, voxel_mm)
    ribbon = np.maximum(walls, share_below(variety.cortex_mm, depth_mm, voxel_mm))
    fluid = np.maximum(folded * sulcus, fluid)
    solid = 1 - fluid
    average = grey / np.maximum(1 - shares[0], 1e-3)
    grey = solid * (folded * np.clip(ribbon, 0, 1) + (1 - folded) * np.minimum(average, 1))
    return fluid, grey


def brain_intensity(
    priors: np.ndarray,
    depth_mm: np.ndarray,
    sheets_mm: np.ndarray,
    variety: Variety,
    voxel_mm: float,
) -> np.ndarray:
    """Return the intensity of the brain's part of each voxel, shape ``(n,)``.

    Parameters
    ----------
    priors, depth_mm : numpy.ndarray
        See `tissue_shares`.
    sheets_mm : numpy.ndarray
        Signed distances from the sheets of three fields, shape ``(3, n)``.
    """
    fluid, grey = tissue_shares(priors, depth_mm, sheets_mm[0], variety, voxel_mm)
    intensity = 1 + fluid * (variety.csf - 1) + grey * (variety.grey - 1)
    if variety.vessel_mm > 0:
        across = [share_of_sheet(variety.vessel_mm / 2, d, voxel_mm) for d in sheets_mm[1:]]
        intensity += across[0] * across[1] * (variety.vessel_intensity - intensity)
    return np.asarray(intensity)
