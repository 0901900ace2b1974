"""The shares of fluid, grey and white matter in the template brain.

The maps are the MNI152 tissue priors that nilearn bundles: those of an average brain.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from voxcast.images import phantom

if TYPE_CHECKING:
    import torch

    from voxcast.images.interpolation import TemplateGrid

_SIGMA_STEP_MM = 0.5


@functools.cache
def template_maps() -> np.ndarray:
    """Return the shares of CSF, GM and WM, float32 of shape ``(3, i, j, k)`` on brain's grid."""
    from nilearn.datasets import load_mni152_gm_template, load_mni152_wm_template

    brain = phantom.brain()
    grey, white = (
        _on_grid(load(resolution=1), brain.grid)
        for load in (load_mni152_gm_template, load_mni152_wm_template)
    )
    # No map of the fluid is bundled: it is the part of the brain that is neither grey nor white.
    fluid = np.clip(brain.mask - grey - white, 0, None)
    return np.stack([fluid, grey * brain.mask, white * brain.mask]).astype(np.float32)


# Each takes 50 MB, and every volume has a spacing of its own.
@functools.lru_cache(maxsize=2)
def maps_at(spacing_mm: float) -> torch.Tensor:
    """Return the maps as voxels of a spacing see them, float32 of shape ``(3, i, j, k)``."""
    return _smoothed(_sigma_mm(spacing_mm))


def maps_near(spacing_mm: float) -> torch.Tensor:
    """Return the maps as voxels of about a spacing see them; kept for the next volume."""
    return _at_step(round(_sigma_mm(spacing_mm) / _SIGMA_STEP_MM))


@functools.cache
def _at_step(steps: int) -> torch.Tensor:
    return _smoothed(steps * _SIGMA_STEP_MM)


def _sigma_mm(spacing_mm: float) -> float:
    # As in the image: a coarse voxel is a mixture, and its label is the largest part.
    return float(max(0.0, spacing_mm**2 - 1.0) ** 0.5 / 2.355)


def _smoothed(sigma_mm: float) -> torch.Tensor:
    import torch

    maps = [ndimage.gaussian_filter(m, sigma_mm, truncate=3.0) for m in template_maps()]
    return torch.from_numpy(np.stack(maps))


def _on_grid(image: Any, grid: TemplateGrid) -> np.ndarray:
    """Cut a 1 mm map to the grid, which lies on the same voxels and has a border of zeros."""
    data = np.asarray(image.dataobj, dtype=np.float32)
    start = np.rint(grid.low_mm - image.affine[:3, 3]).astype(int)
    padded = np.pad(data, phantom.BRAIN_PAD)
    start = start + phantom.BRAIN_PAD
    window = (slice(n, n + size) for n, size in zip(start, grid.shape, strict=True))
    return np.asarray(padded[tuple(window)])
