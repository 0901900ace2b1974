"""Volumes of the ANTs applications: reading, resampling, N4, registration and writing."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import ants
import numpy as np

from voxcast.apps.phase_log import phase
from voxcast.errors import ImageError, one_line
from voxcast.files import atomic_path

N4_LEVELS = 4
SEED = 1
_LINEAR = 0  # interpolation of ants.resample_image, whose default is the nearest neighbour


def read_volume(image: Path) -> Any:
    """Read one 3-D volume.

    Returns
    -------
    ants.ANTsImage
        With float32 voxels, as all algorithms of ANTs take them; 0 where one is not finite.

    Raises
    ------
    ImageError
        If the file is missing, ANTs cannot read it, or it is not one 3-D volume or holds one
        value only.
    """
    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume = ants.image_read(str(image))
    except (KeyError, RuntimeError, ValueError) as error:  # the first names a type of voxels
        problem, then = f"ANTs cannot read it ({one_line(error)})", "save it as NIfTI, float32"
        raise ImageError(problem, image, then) from None
    if volume.dimension != 3 or volume.components != 1:
        raise ImageError("is not one 3-D volume", image)
    voxels = volume.numpy()
    if not np.isfinite(voxels).all():
        voxels = np.nan_to_num(voxels, nan=0.0, posinf=0.0, neginf=0.0)
        volume = volume.new_image_like(voxels)
    # Of a constant volume ANTs takes everything as foreground, and later steps fail.
    check_foreground(bool(np.ptp(voxels) > 0), image)
    return volume


def check_foreground(exists: bool, image: Path) -> None:
    """Raise an `ImageError` that names the image unless it has a foreground."""
    if not exists:
        raise ImageError("has no foreground", image, "look at it in a viewer")


def coarsened(volume: Any, spacing_mm: float, *, logged: bool = True) -> Any:
    """Return ``volume`` with no axis finer than ``spacing_mm``; coarser ones are unchanged.

    Linear and without smoothing: meant to make a run smaller, not for image quality.

    Parameters
    ----------
    spacing_mm : float
        0 for the volume as it is.
    logged : bool
        Whether resampling is a phase of its own.
    """
    if min(volume.spacing) >= spacing_mm:
        return volume
    spacing = [max(spacing_mm, axis_mm) for axis_mm in volume.spacing]
    with phase("resample") if logged else contextlib.nullcontext():
        return ants.resample_image(volume, spacing, use_voxels=False, interp_type=_LINEAR)


def n4(
    volume: Any,
    mask: Any,
    *,
    iterations: int,
    shrink_factor: int = 4,
    tolerance: float = 1e-7,
) -> Any:
    """Return ``volume`` with its bias corrected by N4 inside ``mask``.

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
    )


def registered(
    image: Path, fixed: Any, moving: Any, kind: str, folder: str | Path, **settings: Any
) -> dict[str, Any]:
    """Register ``moving``, which was read from ``image``, to ``fixed``; files go to ``folder``.

    Raises
    ------
    ImageError
        If ANTs cannot register it.
    """
    # ants.registration ignores its argument random_seed.
    ants.config.set_ants_deterministic(on=False, seed_value=SEED)
    prefix = f"{folder}/{kind}_"
    try:
        return dict(ants.registration(fixed, moving, kind, outprefix=prefix, **settings))
    except RuntimeError as error:
        raise ImageError(f"ANTs cannot register it ({one_line(error)})", image) from None


def volumes_ml(labels: Any, count: int) -> list[float]:
    """Return the volumes of labels 0 to ``count`` - 1 in millilitres."""
    counts = np.bincount(labels.numpy().astype(np.int64).ravel(), minlength=count)
    return [float(n) * math.prod(labels.spacing) / 1000.0 for n in counts]


def write_volume(path: Path, volume: Any) -> None:
    """Write ``volume`` atomically; the folder is created if missing."""
    with atomic_path(path) as partial:
        ants.image_write(volume, str(partial))
