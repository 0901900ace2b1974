"""A varied head: brain, scalp and removed parts at any points of the template.

The template is an average brain, in which folds are blurred away. Sheets of fluid between two
ribbons of cortex take their place near the surface: the zero sets of fields of noise, from a tile
that is made once per process. Every head takes another part of it, turned and stretched. Fat, bone
and skin have a thickness and an intensity of their own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from voxcast_apps.heads import template
from voxcast_apps.heads.template import (
    TemplateGrid,
    maps_near,
    sample,
    share_below,
    share_of_sheet,
)

if TYPE_CHECKING:
    import torch

    from voxcast_apps.heads.recipe import Recipe, Variety


TILE_POINTS = 96
TILE_GRID = TemplateGrid(np.zeros(3), 2.0, (TILE_POINTS,) * 3)
# Distance between neighbouring sheets of each field in the tile: sulci, vessels, vessels.
SHEETS_MM = (10.0, 24.0, 24.0)
_RELATIVE_WIDTH = 0.2
_FARTHEST = 0.6  # of the distance between sheets


class FoldedSheets:
    """The sheets of one head.

    Parameters
    ----------
    seed : int
        Decides the part of the tile.
    sheets_mm : float
        Distance between neighbouring sulci.
    """

    def __init__(self, seed: int, sheets_mm: float) -> None:
        import torch
        from scipy.spatial.transform import Rotation

        rng = np.random.default_rng([seed, 2])
        self._stretch = sheets_mm / SHEETS_MM[0]
        turn = Rotation.random(rng=rng).as_matrix() / self._stretch
        self._turn = torch.from_numpy(turn.astype(np.float32))
        extent_mm = TILE_GRID.spacing_mm * (TILE_POINTS - 1)
        self._shift_mm = torch.from_numpy(rng.uniform(0, extent_mm, 3).astype(np.float32))

    def distances_mm(self, points_mm: torch.Tensor, fields: slice = slice(None)) -> np.ndarray:
        """Return signed distances from the sheets of fields, shape ``(fields, ...)``.

        Parameters
        ----------
        points_mm : torch.Tensor
            In the template, shape ``(..., 3)``.
        """
        flat = points_mm.reshape(1, 1, -1, 3) @ self._turn + self._shift_mm
        sampled = sample(_tile()[fields], TILE_GRID, flat, edge="reflection").numpy()
        distances: np.ndarray = (
            sampled.reshape(len(sampled), *points_mm.shape[:-1]) * self._stretch
        )
        return distances


@functools.cache
def _tile() -> torch.Tensor:
    import torch

    rng = np.random.default_rng(11)
    return torch.from_numpy(np.stack([_signed_distance_mm(rng, mm) for mm in SHEETS_MM]))


def _signed_distance_mm(rng: np.random.Generator, sheets_mm: float) -> np.ndarray:
    """Return the distance from the zero set of noise of one wavelength: value over gradient."""
    noise = rng.standard_normal((TILE_POINTS,) * 3)
    cycles = np.fft.fftfreq(TILE_POINTS, TILE_GRID.spacing_mm)
    along = np.fft.rfftfreq(TILE_POINTS, TILE_GRID.spacing_mm)
    frequency = np.sqrt(
        cycles[:, None, None] ** 2 + cycles[None, :, None] ** 2 + along[None, None, :] ** 2
    )
    wanted = 1 / (2 * sheets_mm)  # a wave has two zeros
    band = np.exp(-0.5 * ((frequency - wanted) / (_RELATIVE_WIDTH * wanted)) ** 2)
    field = np.fft.irfftn(np.fft.rfftn(noise) * band, s=noise.shape, axes=(0, 1, 2))
    slopes = np.gradient(field, TILE_GRID.spacing_mm)
    slope = np.sqrt(sum(s * s for s in slopes))
    distance = field / np.maximum(slope, 0.3 * slope.mean())
    farthest = _FARTHEST * sheets_mm
    return np.asarray(np.clip(distance, -farthest, farthest), np.float32)


_AIR = 0.004  # intensity of air, with the tails of interpolation
_FROM_BRAIN_MM = 4.0  # a face is not removed nearer to the brain's hull
_LEAST_SHARE = 0.01  # of the brain in a voxel
_COIL_CENTRE_MM = (0.0, -18.0, 8.0)  # right, anterior, superior: the middle of the brain
_FADING_MM = 8.0  # sulci fade into the template's own tissues over this depth
_FAT_BETWEEN_MUSCLES = (0.62, 0.95)  # intensities of the template's deep tissue


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

    def at(self, points_mm: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return intensity, the brain's share and what is retained of voxels.

        Parameters
        ----------
        points_mm : torch.Tensor
            Points of the template, ``(i, j, k, 3)`` in reversed axis order.
        """
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
        return intensity, brain, retained

    def _patches(self, points_mm: torch.Tensor) -> np.ndarray:
        smooth_mm = self._sheets.distances_mm(points_mm, slice(1, 2))[0]
        return np.asarray(np.clip(smooth_mm / (0.4 * SHEETS_MM[1]), -1, 1))


def removes_tissue(variety: Variety) -> bool:
    """Tell whether voxels are zero depending on where in the head they lie."""
    return bool(variety.background == "zero" or variety.deface_mm or variety.neck_mm)


def retained_voxels(
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
    """Return intensities around the brain, with air as 0; see `voxcast_apps.heads.template.paint`.

    Parameters
    ----------
    maps : numpy.ndarray
        Distances from hull and face, and the deep tissue: the first three of `build_maps`.
    points_mm : numpy.ndarray
        Where the voxels lie in the template, in reversed axis order, shape ``(..., 3)``.
    patches : numpy.ndarray
        Smooth noise between -1 and 1, by which the layers' thickness differs.
    """
    hull_mm, face_mm, deep = maps
    superior_mm, anterior_mm = points_mm[..., 0], points_mm[..., 1]
    low = np.clip((-30 - superior_mm) / 40, 0, 1)
    behind = np.clip((-20 - anterior_mm) / 30, 0.25, 1)
    return template.paint(
        hull_mm,
        face_mm,
        _deep(deep, variety, fat_intensity),
        patches,
        spacing_mm=voxel_mm,
        skull_mm=skull_mm,
        fat_mm=fat_mm + variety.nape_mm * low * behind,
        fat_intensity=fat_intensity,
        gap_mm=variety.gap_mm,
        csf=variety.gap_csf,
        bone=variety.bone,
        marrow=variety.marrow,
        skin=variety.skin,
        bone_spread=variety.bone_spread,
    )


def _deep(deep: np.ndarray, variety: Variety, fat_intensity: float) -> np.ndarray:
    """Give muscle and the fat between muscles the head's own intensities."""
    lean, fat = _FAT_BETWEEN_MUSCLES
    share = np.clip((deep - lean) / (fat - lean), 0, 1)
    muscle = deep * (variety.muscle / template.MUSCLE)
    return np.asarray(muscle + share * (fat_intensity - muscle))
