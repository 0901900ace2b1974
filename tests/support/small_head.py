"""A head small enough for an application to be run on it in a test."""

import nibabel
import numpy as np


def write_head(path, value=None, spacing_mm=4.0, edge=32):
    """Write a ball with two shells in air, of a size in voxels independent of the spacing."""
    grid = np.stack(np.meshgrid(*[np.arange(float(edge))] * 3, indexing="ij"))
    radius = np.sqrt(((grid - (edge - 1) / 2) ** 2).sum(axis=0)) * 32 / edge
    noise = np.random.default_rng(3).normal(0, 10, radius.shape)
    voxels = np.select([radius < 6, radius < 9, radius < 12], [300, 600, 900], 0) + noise
    if value is not None:
        voxels = np.full(radius.shape, value)
    affine = np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    nibabel.save(nibabel.Nifti1Image(voxels.astype(np.float32), affine), path)
