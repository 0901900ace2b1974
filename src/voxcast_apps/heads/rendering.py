"""From a recipe to voxels: one warp for field of view, spacing, pose and anatomy, then a scanner.

The scanner is a simulated acquisition: bias field, motion, ghosts, noise, contrast.
`Rendered.problem` is the check that a volume must pass before anything is measured on it.

Tissue labels, the ground truth for evaluating a segmentation, are the MNI152 tissue priors that
nilearn bundles, warped as the image was: a label says which tissue holds most of a voxel. Motion
during the acquisition moves the image and not the labels.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.files import atomic_path
from voxcast.log import progress
from voxcast_apps.heads import template
from voxcast_apps.heads.recipe import draw_recipe
from voxcast_apps.heads.template import TemplateGrid, maps_at, sample
from voxcast_apps.heads.varied_head import VariedHead, removes_tissue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from voxcast_apps.heads.grids import Sizes
    from voxcast_apps.heads.recipe import Recipe, Variety


_BIAS_ORDER, _BIAS_POINTS = 3, (32, 32, 32)


def acquire(clean: np.ndarray, recipe: Recipe, affine: np.ndarray) -> np.ndarray:
    """Return the image as acquired by a scanner: bias, motion, ghosts and Rician noise.

    Parameters
    ----------
    clean : numpy.ndarray
        float32, three axes, white matter near 1.
    affine : numpy.ndarray
        Voxels to millimetres, shape ``(4, 4)``; motion turns the head in millimetres.
    """
    import torch
    import torchio

    # The field is smooth: torchio computes it on a small cube, which saves a third of the time.
    cube = torchio.ScalarImage(tensor=torch.ones(1, *_BIAS_POINTS))
    bias = torchio.BiasField(coefficients=list(recipe.bias), order=_BIAS_ORDER)(cube).data
    field = torch.nn.functional.interpolate(
        bias[None], clean.shape, mode="trilinear", align_corners=True
    )[0]
    image = torchio.ScalarImage(tensor=torch.from_numpy(clean)[None] * field, affine=affine)
    steps: list[torchio.Transform] = []
    if recipe.motion_times:
        steps.append(
            torchio.Motion(
                degrees=np.array(recipe.motion_deg),
                translation=np.array(recipe.motion_mm),
                times=np.array(recipe.motion_times),
                image_interpolation="linear",
            )
        )
    if recipe.ghosts:
        steps.append(
            torchio.Ghosting(
                num_ghosts=recipe.ghosts,
                axis=recipe.ghost_axis,
                intensity=recipe.ghost_intensity,
                restore=0.02,
            )
        )
    signal: np.ndarray = torchio.Compose(steps)(image).data[0].numpy()
    # Magnitude of a complex signal with noise in both channels: Rayleigh in air, not Gaussian.
    rng = np.random.default_rng([recipe.noise_seed, 1])
    real = signal + recipe.noise * rng.standard_normal(signal.shape, dtype=np.float32)
    imaginary = recipe.noise * rng.standard_normal(signal.shape, dtype=np.float32)
    magnitude: np.ndarray = np.hypot(real, imaginary)
    return magnitude


def process(image: np.ndarray, variety: Variety, retained: np.ndarray | None) -> None:
    """Smooth an acquired image, and set the removed parts to zero, in place."""
    from scipy import ndimage

    if variety.blur > 0:
        ndimage.gaussian_filter(image, variety.blur, output=image, truncate=3.0)
    if retained is not None:
        image *= retained
    shares = variety.zero_borders  # of the first and last end of each axis
    for axis, (first, last) in enumerate(zip(shares[::2], shares[1::2], strict=True)):
        along, length = np.moveaxis(image, axis, 0), image.shape[axis]
        along[: round(first * length)] = 0
        along[length - round(last * length) :] = 0


def store(image: np.ndarray, recipe: Recipe) -> np.ndarray:
    """Apply the contrast and return the image in the recipe's type.

    The exponent works on data scaled to 0 to 1: on raw intensities it would compute 700^gamma.
    """
    # A few bright voxels of fat or noise would otherwise squeeze the brain into few integers.
    percentile = 99.9 if recipe.variety is None else recipe.variety.top_percentile
    top = float(np.percentile(image[::2, ::2, ::2], percentile))
    scaled = np.clip(image / top, 0.0, 1.0) ** np.float32(recipe.gamma)
    values: np.ndarray = scaled * np.float32(recipe.full_range)
    dtype = np.dtype(recipe.dtype)
    return (np.rint(values) if dtype.kind in "iu" else values).astype(dtype)


# Of a volume, by whether its head is varied: it then may be cut and noisy.
BOUNDS: dict[bool, dict[str, tuple[float, float]]] = {
    False: {"mask_ratio": (0.8, 1.1), "snr": (4.0, 1000.0), "contrast": (0.1, 3.0)},
    True: {"mask_ratio": (0.6, 1.15), "snr": (1.5, 1000.0), "contrast": (0.05, 6.0)},
}
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
        for name, (low, high) in BOUNDS[self.varied].items():
            value = getattr(self, name)
            if not low <= value <= high:
                return f"{name} is {value:.3g}, not between {low:g} and {high:g}"
        return None


def render(recipe: Recipe) -> Rendered:
    """Generate the volume of a recipe; the same recipe gives the same bytes on one machine."""
    pose, affine, shape = grid_of(recipe)
    clean, brain, retained = _warp(recipe, pose, affine, shape)
    image = acquire(clean, recipe, affine)
    if not recipe.shell:
        image = image * (brain >= 0.5)  # as after brain extraction
    if recipe.variety is not None:
        process(image, recipe.variety, retained)
    array = store(image, recipe)
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
        retained = np.ones(shape, bool) if removes_tissue(recipe.variety) else None
        for slab, points_mm in slabs:
            clean[slab], share[slab], part = head.at(points_mm)
            if retained is not None:
                retained[slab] = part
        return clean, share, retained
    brain = template.brain_channels(spacing_mm)
    for slab, points_mm in slabs:
        intensity, mask = sample(brain, template.brain().grid, points_mm).numpy()
        if recipe.shell:
            maps, grid = template.shell_channels()
            around = template.paint(
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
