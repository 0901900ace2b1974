"""Volumes of the ANTs applications: reading, resampling, foreground, N4 and writing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ants

from voxcast.apps.phase_log import phase
from voxcast.errors import ConfigError, ImageError, one_line
from voxcast.files import atomic_path

N4_LEVELS = 4
SEED = 1
_LINEAR = 0  # interpolation of ants.resample_image, whose default is the nearest neighbour


def read_volume(image: Path) -> Any:
    """Read one 3-D volume.

    Returns
    -------
    ants.ANTsImage
        With float32 voxels, as all algorithms of ANTs take them.

    Raises
    ------
    ImageError
        If the file is missing, ANTs cannot read it, or it is not one 3-D volume.
    """
    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume = ants.image_read(str(image))
    except KeyError as error:  # its name for a type of voxels
        problem = f"ANTs cannot read voxels of type {error}"
        raise ImageError(problem, image, "save it as float32") from None
    except (RuntimeError, ValueError) as error:
        raise ImageError(f"ANTs cannot read it ({one_line(error)})", image) from None
    if volume.dimension != 3 or volume.components != 1:
        raise ImageError("is not one 3-D volume", image)
    return volume


def is_finer(volume: Any, spacing_mm: float) -> bool:
    """Return whether an axis of ``volume`` is finer than ``spacing_mm``; never for 0.0.

    Raises
    ------
    ConfigError
        If the spacing is negative or not finite.
    """
    if not (math.isfinite(spacing_mm) and spacing_mm >= 0):
        raise ConfigError(f"needs 0 or a spacing in mm, not {spacing_mm}", "spacing_mm")
    return bool(min(volume.spacing) < spacing_mm)


def resampled(volume: Any, spacing_mm: float) -> Any:
    """Return ``volume`` with no axis finer than ``spacing_mm``; coarser ones are unchanged.

    Linear and without smoothing: meant to make a run smaller, not for image quality.
    """
    spacing = [max(spacing_mm, axis_mm) for axis_mm in volume.spacing]
    return ants.resample_image(volume, spacing, use_voxels=False, interp_type=_LINEAR)


def coarsened(volume: Any, spacing_mm: float) -> Any:
    """Return ``volume`` with no axis finer than ``spacing_mm``; log a phase if it is resampled."""
    if not is_finer(volume, spacing_mm):
        return volume
    with phase("resample"):
        return resampled(volume, spacing_mm)


def foreground(volume: Any, image: Path) -> Any:
    """Return the foreground mask that ANTs finds: the head, or the brain if skull-stripped.

    Raises
    ------
    ImageError
        If there is none; `image` is named in the message.
    """
    # On a constant volume ANTs returns everything as foreground, and later steps fail.
    check_contrast(volume, image)
    mask = ants.get_mask(volume)
    if not mask.sum() > 0:
        raise ImageError("has no foreground", image, "look at it in a viewer")
    return mask


def check_contrast(volume: Any, image: Path) -> None:
    """Raise an `ImageError` that names `image` if all voxels of ``volume`` have one value."""
    if not volume.max() > volume.min():
        raise ImageError("has no foreground", image, "look at it in a viewer")


def n4(
    volume: Any,
    mask: Any,
    *,
    iterations: int,
    shrink_factor: int = 4,
    tolerance: float = 1e-7,
    bias_field: bool = False,
) -> Any:
    """Return ``volume`` with its bias corrected by N4 inside ``mask``, or the bias field.

    Parameters
    ----------
    iterations : int
        At most, on each of the four levels.
    """
    return ants.n4_bias_field_correction(
        volume,
        mask=mask,
        shrink_factor=shrink_factor,
        convergence={"iters": [iterations] * N4_LEVELS, "tol": tolerance},
        return_bias_field=bias_field,
    )


def fix_seed() -> None:
    """Fix the seed of registrations; ``ants.registration`` ignores its argument random_seed."""
    ants.config.set_ants_deterministic(on=False, seed_value=SEED)


def volume_ml(mask: Any) -> float:
    """Return the volume of the voxels of ``mask`` in millilitres."""
    return float(float(mask.sum()) * math.prod(mask.spacing) / 1000.0)


def write_volume(path: Path, volume: Any) -> None:
    """Write ``volume`` atomically; the folder is created if missing."""
    with atomic_path(path) as partial:
        ants.image_write(volume, str(partial))
