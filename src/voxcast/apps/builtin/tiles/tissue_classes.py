"""The tissues that the network distinguishes, and their volumes; needs numpy only."""

from __future__ import annotations

import numpy as np

TISSUES = ("background", "csf", "gm", "wm")  # the label of a tissue is its index


def volumes_ml(labels: np.ndarray, voxel_ml: float) -> dict[str, float]:
    """Return the volume of each tissue in millilitres, by ``<tissue>_ml``.

    Parameters
    ----------
    labels : ndarray of int
        A label for each voxel, of any shape.
    voxel_ml : float
        Volume of a voxel.
    """
    counts = np.bincount(labels.astype(np.int64).ravel(), minlength=len(TISSUES))
    return {f"{name}_ml": float(n) * voxel_ml for name, n in zip(TISSUES, counts, strict=True)}
