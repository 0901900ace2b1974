"""A varied head: brain, scalp and removed parts at any points of the template.

The template is an average brain, in which folds are blurred away. Sheets of
fluid between two ribbons of cortex take their place near the surface. Fat, bone and skin have a
thickness and an intensity of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast_apps.heads import shell, template
from voxcast_apps.heads.acquisition import retained_voxels
from voxcast_apps.heads.folds import SHEETS_MM, FoldedSheets
from voxcast_apps.heads.interpolation import sample, share_below, share_of_sheet
from voxcast_apps.heads.shell import Tissues
from voxcast_apps.heads.template import maps_near

if TYPE_CHECKING:
    import torch

    from voxcast_apps.heads.recipe import Recipe, Variety

_LEAST_SHARE = 0.01  # of the brain in a voxel
_COIL_CENTRE_MM = (0.0, -18.0, 8.0)  # right, anterior, superior: the middle of the brain
_FADING_MM = 8.0  # sulci fade into the template's own tissues over this depth
_FAT_BETWEEN_MUSCLES = (0.62, 0.95)  # intensities of the template's deep tissue


@dataclass(frozen=True)
class HeadPart:
    """Intensity, the brain's share and the retained part, of voxels at some points."""

    intensity: np.ndarray
    brain: np.ndarray
    retained: np.ndarray


class VariedHead:
    """The head of a recipe.

    Parameters
    ----------
    variety : Variety
        The recipe's, which is not None.
    """

    def __init__(self, recipe: Recipe, variety: Variety) -> None:
        self._recipe, self._variety = recipe, variety
        self._voxel_mm = float(np.prod(recipe.spacing_mm) ** (1 / 3))
        self._priors = maps_near(self._voxel_mm)
        self._sheets = FoldedSheets(recipe.noise_seed, variety.fold_mm)

    def at(self, points_mm: torch.Tensor) -> HeadPart:
        """Return the head at points of the template, ``(i, j, k, 3)`` in reversed axis order."""
        recipe, variety = self._recipe, self._variety
        priors = sample(self._priors, template.brain().grid, points_mm).numpy()
        brain = np.minimum(priors.sum(axis=0), 1)
        maps, grid = template.shell_channels()
        # Hull, face and deep tissue: the template's patches are the same for every head.
        surroundings = sample(maps[: 3 if recipe.shell else 1], grid, points_mm, "border").numpy()
        intensity = np.zeros(brain.shape, np.float32)
        inside = brain > _LEAST_SHARE
        intensity[inside] = brain[inside] * brain_intensity(
            priors[:, inside],
            -surroundings[0][inside],
            self._sheets.distances_mm(points_mm[inside]),
            variety,
            self._voxel_mm,
        )
        where_mm = points_mm.numpy()
        if recipe.shell:
            intensity += (1 - brain) * scalp_intensity(
                surroundings,
                where_mm,
                self._patches(points_mm),
                variety,
                voxel_mm=self._voxel_mm,
                skull_mm=recipe.skull_mm,
                fat_mm=recipe.fat_mm,
                fat_intensity=recipe.fat_intensity,
            )
        retained = retained_voxels(where_mm, intensity, surroundings[0], variety)
        if variety.background == "level":
            air = np.clip(1 - intensity / 0.05, 0, 1)
            intensity += air * (variety.background_level - intensity)
        if variety.coil_gain:
            from_middle_mm = np.linalg.norm(where_mm - _COIL_CENTRE_MM[::-1], axis=-1)
            intensity *= np.exp(variety.coil_gain * (from_middle_mm / 100 - 0.4))
        return HeadPart(intensity, brain, retained)

    def _patches(self, points_mm: torch.Tensor) -> np.ndarray:
        smooth_mm = self._sheets.distances_mm(points_mm, slice(1, 2))[0]
        return np.asarray(np.clip(smooth_mm / (0.4 * SHEETS_MM[1]), -1, 1))


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


def scalp_intensity(
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
    """Return intensities around the brain, with air as 0; see `voxcast_apps.heads.shell.paint`.

    Parameters
    ----------
    maps : numpy.ndarray
        Distances from hull and face, and the deep tissue, of `voxcast_apps.heads.shell.ShellMaps`.
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
