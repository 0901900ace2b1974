"""The template head that all generated volumes are warped from, built once per process.

The brain is the MNI152 T1 that nilearn bundles, which is skull-stripped, with its tissue priors,
of an average brain; what surrounds it comes from `voxcast_apps.heads.shell`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from voxcast_apps.heads import shell
from voxcast_apps.heads.interpolation import TemplateGrid

if TYPE_CHECKING:
    import torch

BRAIN_PAD = 6  # voxels kept around the brain, for smoothing and interpolation
_SIGMA_STEP_MM = 0.25
_TISSUE_STEP_MM = 0.5


@dataclass(frozen=True)
class Brain:
    """Intensity (white matter near 1) and mask of the template brain on a 1 mm grid, float32."""

    intensity: np.ndarray
    mask: np.ndarray
    grid: TemplateGrid

    @property
    def volume_mm3(self) -> float:
        """Volume of the mask."""
        return float(self.mask.sum(dtype=np.float64)) * self.grid.spacing_mm**3


@functools.cache
def brain() -> Brain:
    """Load the template brain."""
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=1)
    intensity = np.asarray(image.dataobj, dtype=np.float32)
    mask = ndimage.binary_fill_holes(intensity > 0)
    box = ndimage.find_objects(mask.astype(np.int8))[0]
    intensity, mask = intensity[box], mask[box]
    intensity = intensity / np.percentile(intensity[mask], 95)
    # The template's fluid is brighter than a scan's, because it is an average of heads.
    intensity = np.where(mask, np.clip((intensity - 0.2) / 0.8, 0.05, None), 0)
    low_mm = image.affine[:3, 3] + [s.start for s in box] - BRAIN_PAD
    padded = np.pad(intensity.astype(np.float32), BRAIN_PAD)
    grid = TemplateGrid(low_mm, 1.0, padded.shape)
    return Brain(padded, np.pad(mask, BRAIN_PAD).astype(np.float32), grid)


@functools.cache
def brain_extent_mm() -> np.ndarray:
    """Return points on the brain's surface in template space, shape ``(n, 3)``."""
    template = brain()
    mask = template.mask > 0
    edge = np.argwhere(mask & ~ndimage.binary_erosion(mask))[::37]
    return np.asarray(edge * template.grid.spacing_mm + template.grid.low_mm)


def rotation(degrees: tuple[float, ...]) -> np.ndarray:
    """Return the rotation about right, then anterior, then superior, shape ``(3, 3)``."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_euler("xyz", degrees, degrees=True).as_matrix())


def brain_box_mm(
    rotation_deg: tuple[float, ...], scale: tuple[float, ...], oblique_deg: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner of a posed brain along the axes of a turned grid."""
    pose = rotation(rotation_deg) @ np.diag(scale)
    points = brain_extent_mm() @ pose.T @ rotation(oblique_deg)
    return points.min(axis=0), points.max(axis=0)


def brain_channels(spacing_mm: float) -> torch.Tensor:
    """Return intensity and mask, smoothed for sampling at a spacing.

    Returns
    -------
    torch.Tensor
        float32, shape ``(2, i, j, k)`` on `brain`'s grid.
    """
    # A voxel of s mm blurs like a Gaussian of about s / 2.355; the template has 1 mm already.
    sigma_mm = max(0.0, spacing_mm**2 - 1.0) ** 0.5 / 2.355
    return _smoothed_brain(round(sigma_mm / _SIGMA_STEP_MM))


@functools.cache
def _smoothed_brain(steps: int) -> torch.Tensor:
    import torch

    template = brain()
    channels = [template.intensity, template.mask]
    if steps:
        sigma = steps * _SIGMA_STEP_MM / template.grid.spacing_mm
        channels = [ndimage.gaussian_filter(c, sigma, truncate=3.0) for c in channels]
    return torch.from_numpy(np.stack(channels))


@functools.cache
def shell_channels() -> tuple[torch.Tensor, TemplateGrid]:
    """Return the shell's four maps, float32 of shape ``(4, i, j, k)``, and their grid."""
    import torch

    grid = TemplateGrid(shell.LOW_MM, shell.GRID_MM, shell.SHAPE)
    template = brain()
    inside, within = [], []
    for axis in range(3):
        points_mm = grid.low_mm[axis] + shell.GRID_MM * np.arange(grid.shape[axis])
        index = np.rint(points_mm - template.grid.low_mm[axis]).astype(int)
        inside.append((index >= 0) & (index < template.grid.shape[axis]))
        within.append(index[inside[-1]])
    mask = np.zeros(grid.shape, bool)
    mask[np.ix_(*inside)] = template.mask[np.ix_(*within)] > 0
    maps = shell.build_maps(mask)
    stacked = np.stack([maps.hull_mm, maps.face_mm, maps.deep, maps.patches])
    return torch.from_numpy(stacked), grid


@functools.cache
def template_maps() -> np.ndarray:
    """Return the shares of CSF, GM and WM, float32 of shape ``(3, i, j, k)`` on brain's grid."""
    from nilearn.datasets import load_mni152_gm_template, load_mni152_wm_template

    template = brain()
    grey, white = (
        _on_grid(load(resolution=1), template.grid)
        for load in (load_mni152_gm_template, load_mni152_wm_template)
    )
    # No map of the fluid is bundled: it is the part of the brain that is neither grey nor white.
    fluid = np.clip(template.mask - grey - white, 0, None)
    return np.stack([fluid, grey * template.mask, white * template.mask]).astype(np.float32)


# Each takes 50 MB, and every volume has a spacing of its own.
@functools.lru_cache(maxsize=2)
def maps_at(spacing_mm: float) -> torch.Tensor:
    """Return the maps as voxels of a spacing see them, float32 of shape ``(3, i, j, k)``."""
    return _smoothed(_sigma_mm(spacing_mm))


def maps_near(spacing_mm: float) -> torch.Tensor:
    """Return the maps as voxels of about a spacing see them; kept for the next volume."""
    return _at_step(round(_sigma_mm(spacing_mm) / _TISSUE_STEP_MM))


@functools.cache
def _at_step(steps: int) -> torch.Tensor:
    return _smoothed(steps * _TISSUE_STEP_MM)


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
    padded = np.pad(data, BRAIN_PAD)
    start = start + BRAIN_PAD
    window = (slice(n, n + size) for n, size in zip(start, grid.shape, strict=True))
    return np.asarray(padded[tuple(window)])
