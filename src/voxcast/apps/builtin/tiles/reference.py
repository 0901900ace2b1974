"""The MNI152 template that nilearn bundles, on the network's grid.

The template is an average of many heads, skull-stripped.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from voxcast.apps.builtin.tiles.tiling import LOW_MM, SHAPE, SPACING_MM

_PAD = 20  # voxels of 1 mm; the grid extends beyond the template's
RIM_MM = 4.0  # fluid and bone around the brain, where a head is dark


@dataclass(frozen=True)
class Reference:
    """Intensity (white matter near 1), brain, and brain with a rim; all of `tiling.SHAPE`."""

    intensity: np.ndarray
    brain: np.ndarray
    rim: np.ndarray


@functools.cache
def reference() -> Reference:
    """Load the template."""
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=1)
    fine = np.asarray(image.dataobj, dtype=np.float32)
    brain = ndimage.binary_fill_holes(fine > 0).astype(np.float32)
    # As in voxcast.images.phantom: fluid is brighter in an average than in a scan.
    fine = np.clip((fine / np.percentile(fine[fine > 0], 95) - 0.2) / 0.8, 0.0, None)
    inside = to_grid(brain, image.affine) > 0.5
    rim = ndimage.distance_transform_edt(~inside) * SPACING_MM <= RIM_MM
    return Reference(to_grid(fine, image.affine), inside, rim)


def to_grid(fine: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return a 1 mm map of the template, blurred to the network's grid and put on it, float32."""
    # A voxel of 2 mm blurs like a Gaussian of 2 / 2.355 mm; the map has 1 mm already.
    blurred = ndimage.gaussian_filter(fine.astype(np.float32), (SPACING_MM**2 - 1) ** 0.5 / 2.355)
    padded = np.pad(blurred, _PAD)
    first = np.rint(np.array(LOW_MM) - affine[:3, 3]).astype(int) + _PAD
    step = int(SPACING_MM)
    window = tuple(
        slice(start, start + step * size, step) for start, size in zip(first, SHAPE, strict=True)
    )
    return np.ascontiguousarray(padded[window])
