"""From a recipe to voxels: one warp for field of view, spacing, pose and anatomy, then a scanner.

`Rendered.problem` is the check that a volume must pass before anything is measured on it.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.files import atomic_path
from voxcast_apps.heads import acquisition, shell, template
from voxcast_apps.heads.interpolation import TemplateGrid, sample
from voxcast_apps.heads.varied_head import VariedHead

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from voxcast_apps.heads.recipe import Recipe

MASK_RATIO = (0.8, 1.1)
SIGNAL_TO_NOISE = (4.0, 1000.0)
CONTRAST = (0.1, 3.0)
# Of varied heads, which may be cut and noisy.
VARIED_MASK_RATIO, VARIED_SIGNAL_TO_NOISE, VARIED_CONTRAST = (
    (0.6, 1.15),
    (1.5, 1000.0),
    (0.05, 6.0),
)
_CONTROL_POINTS = (7, 8, 8)  # of the elastic anatomy: one every 32 mm
_SLAB_VOXELS = 1_000_000
_GZIP_LEVEL = 3  # higher ones take far longer on noise and save little


@dataclass(frozen=True)
class Rendered:
    """A volume in its file's orientation, and checks with its warped brain mask.

    `mask_ratio` is the mask's volume over that expected from template and scale; `snr` the median
    over the noise, and `contrast` the 90 % range over the median, of intensities inside the mask.
    """

    array: np.ndarray
    affine: np.ndarray
    mask_ratio: float
    snr: float
    contrast: float
    varied: bool = False

    @property
    def problem(self) -> str | None:
        """Why the volume must not be used, or None."""
        bounds = {"mask_ratio": MASK_RATIO, "snr": SIGNAL_TO_NOISE, "contrast": CONTRAST}
        if self.varied:
            bounds = {
                "mask_ratio": VARIED_MASK_RATIO,
                "snr": VARIED_SIGNAL_TO_NOISE,
                "contrast": VARIED_CONTRAST,
            }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                return f"{name} is {value:.3g}, not between {low:g} and {high:g}"
        return None


def render(recipe: Recipe) -> Rendered:
    """Generate the volume of a recipe; the same recipe gives the same bytes on one machine."""
    pose, affine, shape = grid_of(recipe)
    clean, brain, retained = _warp(recipe, pose, affine, shape)
    image = acquisition.acquire(clean, recipe, affine)
    if not recipe.shell:
        image = image * (brain >= 0.5)  # as after brain extraction
    if recipe.variety is not None:
        acquisition.process(image, recipe.variety, retained)
    array = acquisition.store(image, recipe)
    checks = _checks(array, brain >= 0.5, recipe)
    array, affine = turned(array, affine, recipe)
    return Rendered(array, affine, **checks, varied=recipe.variety is not None)


def grid_of(recipe: Recipe) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Return the pose of the head, and affine and shape of the grid before it is turned."""
    pose = template.rotation(recipe.rotation_deg) @ np.diag(recipe.scale)
    axes = template.rotation(recipe.oblique_deg)
    affine = np.eye(4)
    affine[:3, :3] = axes * np.array(recipe.spacing_mm)
    affine[:3, 3] = axes @ np.array(recipe.corner_mm)
    return pose, affine, recipe.shape


def turned(array: np.ndarray, affine: np.ndarray, recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """Return an array on the recipe's grid, and the grid's affine, in the file's orientation."""
    from nibabel.orientations import axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform

    turn = ornt_transform(io_orientation(affine), axcodes2ornt(tuple(recipe.orientation)))
    flips = tuple(slice(None, None, int(flip)) for flip in turn[:, 1])
    other = array[flips].transpose(np.argsort(turn[:, 0]))
    return other, affine @ inv_ornt_aff(turn, array.shape)


def _warp(
    recipe: Recipe, pose: np.ndarray, affine: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the clean image (white matter near 1), the brain's share, and the retained part.

    None as the last means everything.
    """
    spacing_mm = float(np.prod(recipe.spacing_mm) ** (1 / 3))
    clean = np.empty(shape, np.float32)
    share = np.empty(shape, np.float32)
    slabs = template_points(recipe, pose, affine, shape)
    if recipe.variety is not None:
        head = VariedHead(recipe, recipe.variety)
        retained = np.ones(shape, bool) if acquisition.removes_tissue(recipe.variety) else None
        for slab, points_mm in slabs:
            part = head.at(points_mm)
            clean[slab], share[slab] = part.intensity, part.brain
            if retained is not None:
                retained[slab] = part.retained
        return clean, share, retained
    brain = template.brain_channels(spacing_mm)
    for slab, points_mm in slabs:
        intensity, mask = sample(brain, template.brain().grid, points_mm).numpy()
        if recipe.shell:
            maps, grid = template.shell_channels()
            around = shell.paint(
                *sample(maps, grid, points_mm, edge="border").numpy(),
                spacing_mm=spacing_mm,
                skull_mm=recipe.skull_mm,
                fat_mm=recipe.fat_mm,
                fat_intensity=recipe.fat_intensity,
            )
            intensity = intensity + (1 - mask) * around
        clean[slab] = intensity
        share[slab] = mask
    return clean, share, None


def template_points(
    recipe: Recipe, pose: np.ndarray, affine: np.ndarray, shape: tuple[int, ...]
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield slabs of a grid's first axis and where their voxels lie in the template.

    Yields
    ------
    slice, torch.Tensor
        The tensor holds millimetres, shape ``(i, j, k, 3)``, the last axis in the order superior,
        anterior, right, which `sample` expects.
    """
    import torch

    mapping = (np.linalg.inv(pose) @ affine[:3])[::-1].astype(np.float32)
    to_template = torch.from_numpy(mapping[:, :3].copy())
    origin_mm = torch.from_numpy(mapping[:, 3].copy())
    elastic, region = _elastic(recipe)
    in_plane = torch.meshgrid(*(torch.arange(n).float() for n in shape[1:]), indexing="ij")
    # In slabs, because a dozen maps of a fine grid at once would take gigabytes.
    thick = max(1, _SLAB_VOXELS // int(np.prod(shape[1:])))
    for start in range(0, shape[0], thick):
        slab = slice(start, min(start + thick, shape[0]))
        along_slab = torch.arange(slab.start, slab.stop).float()
        index = torch.stack(
            [
                along_slab[:, None, None].expand(-1, *shape[1:]),
                *(axis[None].expand(len(along_slab), -1, -1) for axis in in_plane),
            ],
            dim=-1,
        )
        # Kept as superior, anterior, right from here on: grid_sample wants the last axis first.
        points_mm = index @ to_template.T + origin_mm
        yield slab, points_mm + sample(elastic, region, points_mm, edge="border").movedim(0, -1)


def _elastic(recipe: Recipe) -> tuple[torch.Tensor, TemplateGrid]:
    """Return a smooth displacement field in millimetres, shape ``(3, i, j, k)``, and its grid."""
    import torch

    rng = np.random.default_rng([recipe.noise_seed, 0])
    control = torch.from_numpy(rng.uniform(-1, 1, (1, 3, *_CONTROL_POINTS)).astype(np.float32))
    # Linear interpolation, then a mean, is nearly a cubic spline: no creases at control points.
    size = [4 * n for n in _CONTROL_POINTS]
    field = torch.nn.functional.interpolate(control, size, mode="trilinear", align_corners=True)
    field = torch.nn.functional.avg_pool3d(field, 5, 1, 2, count_include_pad=False)[0]
    field = field * (recipe.elastic_mm / float(field.abs().max()))
    return field, TemplateGrid(np.array([-112.0, -128.0, -128.0]), 8.0, tuple(size))


def _checks(array: np.ndarray, brain: np.ndarray, recipe: Recipe) -> dict[str, float]:
    """Check the final volume, because a wrong contrast would only show there."""
    expected_mm3 = template.brain().volume_mm3 * float(np.prod(recipe.scale))
    volume_mm3 = float(brain.sum()) * float(np.prod(recipe.spacing_mm))
    mask_ratio = volume_mm3 / expected_mm3
    if not brain.any():
        return {"mask_ratio": mask_ratio, "snr": 0.0, "contrast": 0.0}
    inside = array[brain].astype(np.float32)
    p5, median, p95 = (float(p) for p in np.percentile(inside, (5, 50, 95)))
    bend = np.abs(np.diff(array.astype(np.float32), n=2, axis=0)[brain[1:-1]])
    noise = 1.4826 * float(np.median(bend)) / 6**0.5
    return {
        "mask_ratio": round(mask_ratio, 4),
        # Integers have no noise below their own step.
        "snr": round(median / max(noise, 1e-3 * recipe.full_range), 3),
        "contrast": round((p95 - p5) / max(median, 1e-6), 4),
    }


def write_volume(path: str | Path, array: np.ndarray, affine: np.ndarray) -> None:
    """Write a ``.nii.gz`` atomically; the same content gives the same bytes at any time."""
    import nibabel

    image = nibabel.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.set_sform(affine, code=1)
    image.set_qform(affine, code=1)
    with (
        atomic_path(path) as partial,
        partial.open("wb") as stream,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) as packed,
    ):
        packed.write(image.to_bytes())
