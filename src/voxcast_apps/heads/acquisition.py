"""The simulated acquisition of a clean image: bias field, motion, ghosts, noise, contrast.

`process` is what others did with an image since: of a varied head face, neck, background and
borders may have been set to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from voxcast_apps.heads.recipe import Recipe, Variety

BIAS_ORDER = 3
_BIAS_POINTS = (32, 32, 32)
_AIR = 0.004  # intensity of air, with the tails of interpolation
_FROM_BRAIN_MM = 4.0  # a face is not removed nearer to the brain's hull


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
    bias = torchio.BiasField(coefficients=list(recipe.bias), order=BIAS_ORDER)(cube).data
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
    zero_borders(image, variety.zero_borders)


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


def zero_borders(image: np.ndarray, shares: tuple[float, ...]) -> None:
    """Set the borders of an image to zero; `shares` are of the first and last end of each axis."""
    for axis, (first, last) in enumerate(zip(shares[::2], shares[1::2], strict=True)):
        length = image.shape[axis]
        along = np.moveaxis(image, axis, 0)
        along[: round(first * length)] = 0
        along[length - round(last * length) :] = 0
