"""What surrounds a varied brain: fat, bone and skin of its own thickness and intensity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.images import shell
from voxcast.images.shell import Tissues

if TYPE_CHECKING:
    from voxcast.images.variety import Variety

_FAT_BETWEEN_MUSCLES = (0.62, 0.95)  # intensities of the template's deep tissue


def paint(
    maps: np.ndarray,
    points_mm: np.ndarray,
    patches: np.ndarray,
    variety: Variety,
    *,
    voxel_mm: float,
    skull_mm: float,
    fat_mm: float,
    fat_intensity: float,
) -> np.ndarray:
    """Return intensities around the brain, with air as 0; see `voxcast.images.shell.paint`.

    Parameters
    ----------
    maps : numpy.ndarray
        Distances from hull and face, and the deep tissue, of `voxcast.images.shell.ShellMaps`.
    points_mm : numpy.ndarray
        Where the voxels lie in the template, in reversed axis order, shape ``(..., 3)``.
    patches : numpy.ndarray
        Smooth noise between -1 and 1, by which the layers' thickness differs.
    """
    hull_mm, face_mm, deep = maps
    superior_mm, anterior_mm = points_mm[..., 0], points_mm[..., 1]
    low = np.clip((-30 - superior_mm) / 40, 0, 1)
    behind = np.clip((-20 - anterior_mm) / 30, 0.25, 1)
    return shell.paint(
        hull_mm,
        face_mm,
        _deep(deep, variety, fat_intensity),
        patches,
        spacing_mm=voxel_mm,
        skull_mm=skull_mm,
        fat_mm=fat_mm + variety.nape_mm * low * behind,
        fat_intensity=fat_intensity,
        tissues=Tissues(
            gap_mm=variety.gap_mm,
            csf=variety.gap_csf,
            bone=variety.bone,
            marrow=variety.marrow,
            skin=variety.skin,
            bone_spread=variety.bone_spread,
        ),
    )


def _deep(deep: np.ndarray, variety: Variety, fat_intensity: float) -> np.ndarray:
    """Give muscle and the fat between muscles the head's own intensities."""
    lean, fat = _FAT_BETWEEN_MUSCLES
    share = np.clip((deep - lean) / (fat - lean), 0, 1)
    muscle = deep * (variety.muscle / shell.MUSCLE)
    return np.asarray(muscle + share * (fat_intensity - muscle))
