"""Tissue labels of generated heads: the ground truth for evaluating a segmentation.

The maps are the MNI152 tissue priors that nilearn bundles, warped as the image was, so the labels
follow its pose and elastic anatomy. They are priors of an average brain: a label says which tissue
holds most of a voxel there. Motion during the acquisition moves the image and not these labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.log import progress
from voxcast_apps.heads import template
from voxcast_apps.heads.interpolation import sample
from voxcast_apps.heads.recipe import draw_recipe
from voxcast_apps.heads.rendering import grid_of, render, template_points, turned, write_volume
from voxcast_apps.heads.template import maps_at

if TYPE_CHECKING:
    from pathlib import Path

    from voxcast_apps.heads.grids import Sizes
    from voxcast_apps.heads.recipe import Recipe

TISSUES = ("background", "csf", "gm", "wm")  # the label of a tissue is its index


def tissue_labels(recipe: Recipe) -> np.ndarray:
    """Return the labels of the volume that `voxcast_apps.heads.rendering.render` makes.

    Returns
    -------
    numpy.ndarray
        uint8, in the file's orientation, 0 to 3 as in `TISSUES`.
    """
    pose, affine, shape = grid_of(recipe)
    maps = maps_at(float(np.prod(recipe.spacing_mm) ** (1 / 3)))
    labels = np.empty(shape, np.uint8)
    for slab, points_mm in template_points(recipe, pose, affine, shape):
        shares = sample(maps, template.brain().grid, points_mm).numpy()
        # Outside the maps all three are zero, and voxels without tissue are background.
        everything = np.concatenate([1.0 - shares.sum(axis=0, keepdims=True), shares])
        labels[slab] = everything.argmax(axis=0)
    return turned(labels, affine, recipe)[0]


def write_labelled_heads(
    folder: Path, *, seed: int, subjects: int, sizes: Sizes
) -> list[tuple[Path, Path]]:
    """Write generated heads and their labels, for training or evaluation.

    Returns
    -------
    list of (Path, Path)
        The scan and the labels of each, both ``.nii.gz``; a subject whose volume fails its check
        is left out.
    """
    written = []
    for index in progress(range(1, subjects + 1), desc="generating heads", unit="head"):
        recipe = draw_recipe(seed, index, sizes)
        rendered = render(recipe)
        if rendered.problem is None:
            scan, labels = (folder / f"{index:04d}_{name}.nii.gz" for name in ("T1w", "dseg"))
            write_volume(scan, rendered.array, rendered.affine)
            write_volume(labels, tissue_labels(recipe), rendered.affine)
            written.append((scan, labels))
    return written
