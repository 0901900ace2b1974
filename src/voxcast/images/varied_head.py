"""A varied head: brain, scalp, and what was removed, at any points of the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.images import borders, phantom, varied_scalp
from voxcast.images.folds import SHEETS_MM, FoldedSheets
from voxcast.images.interpolation import sample
from voxcast.images.tissue_maps import maps_near
from voxcast.images.varied_brain import brain_intensity

if TYPE_CHECKING:
    import torch

    from voxcast.images.recipe import Recipe
    from voxcast.images.variety import Variety

_LEAST_SHARE = 0.01  # of the brain in a voxel
_COIL_CENTRE_MM = (0.0, -18.0, 8.0)  # right, anterior, superior: the middle of the brain


@dataclass(frozen=True)
class HeadPart:
    """Intensity, the brain's share and what is retained, of voxels at some points."""

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
        priors = sample(self._priors, phantom.brain().grid, points_mm).numpy()
        brain = np.minimum(priors.sum(axis=0), 1)
        maps, grid = phantom.shell_channels()
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
            intensity += (1 - brain) * varied_scalp.paint(
                surroundings,
                where_mm,
                self._patches(points_mm),
                variety,
                voxel_mm=self._voxel_mm,
                skull_mm=recipe.skull_mm,
                fat_mm=recipe.fat_mm,
                fat_intensity=recipe.fat_intensity,
            )
        retained = borders.in_place(where_mm, intensity, surroundings[0], variety)
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
