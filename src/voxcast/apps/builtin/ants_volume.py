"""Reading, resampling, checking and writing of volumes for the ANTs applications."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from voxcast.errors import ConfigError, ImageError, one_line
from voxcast.files import atomic_path

if TYPE_CHECKING:
    from pathlib import Path

_LINEAR = 0  # interpolation of ants.resample_image, whose default is the nearest neighbour


def read_volume(image: Path) -> Any:
    """Read one 3-D volume.

    Returns
    -------
    ants.ANTsImage
        With voxels of type float32, as all algorithms of ANTs take them.

    Raises
    ------
    ImageError
        If the file is missing, ANTs cannot read it, or it is not one 3-D volume.
    """
    import ants

    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume = ants.image_read(str(image))
    except KeyError as error:  # its name of a type of voxels
        raise ImageError(
            f"ANTs cannot read voxels of type {error}", image, "save it as float32"
        ) from None
    except (RuntimeError, ValueError) as error:
        raise ImageError(f"ANTs cannot read it ({one_line(error)})", image) from None
    if volume.dimension != 3 or volume.components != 1:
        raise ImageError("is not one 3-D volume", image)
    return volume


def is_finer(volume: Any, spacing_mm: float) -> bool:
    """Tell whether an axis of ``volume`` is finer than ``spacing_mm``; none is finer than 0.0.

    Raises
    ------
    ConfigError
        If the spacing is negative or not finite.
    """
    if not (math.isfinite(spacing_mm) and spacing_mm >= 0):
        raise ConfigError(f"needs 0 or a spacing in mm, not {spacing_mm}", "spacing_mm")
    return bool(min(volume.spacing) < spacing_mm)


def resample(volume: Any, spacing_mm: float) -> Any:
    """Return ``volume`` with no axis finer than ``spacing_mm``; coarser ones are unchanged.

    Linear and without smoothing: meant to make a run smaller, not for image quality.
    """
    import ants

    spacing = [max(spacing_mm, axis_mm) for axis_mm in volume.spacing]
    return ants.resample_image(volume, spacing, use_voxels=False, interp_type=_LINEAR)


def foreground(volume: Any, image: Path) -> Any:
    """Return the foreground mask that ANTs finds: the head, or the brain if skull-stripped.

    Raises
    ------
    ImageError
        If there is none; `image` is named in the message.
    """
    import ants

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


def volume_ml(mask: Any) -> float:
    """Return the volume of the voxels of ``mask`` in millilitres."""
    return float(float(mask.sum()) * math.prod(mask.spacing) / 1000.0)


def write_volume(path: Path, volume: Any) -> None:
    """Write ``volume`` atomically; the folder is created if missing."""
    import ants

    with atomic_path(path) as partial:
        ants.image_write(volume, str(partial))
