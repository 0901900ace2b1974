"""Affine and SyN registration of a volume to the MNI152 template, by ANTs.

The template is the one that nilearn bundles: a brain without a skull. It is the fixed image, as in
studies that bring many heads into one space, so most of the work is done on its grid. The affine
step uses only the template's brain and a rim around it, and SyN only what the affine step labels
as brain: a skull has no counterpart in the template.

Run as ``python -m voxcast.apps.builtin.ants_register --image T1w.nii.gz --out FOLDER``; writes
``warped.nii.gz`` (the image on the template's grid), ``brain_mask.nii.gz`` (the template's brain
on the image's grid) and ``result.json``. A `correlation` below 0.4 there indicates a failure.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy import ndimage

from voxcast.apps.builtin import arguments
from voxcast.apps.builtin.ants_volume import (
    check_contrast,
    is_finer,
    read_volume,
    resample,
    volume_ml,
    write_volume,
)
from voxcast.apps.builtin.tiles.pose import starting_transform
from voxcast.apps.phase_log import phase, started
from voxcast.errors import ConfigError, ImageError, exits_cleanly
from voxcast.files import write_json

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS: dict[str, Any] = {
    "template_mm": 2,
    "affine_iterations": 1000,  # at most, at the coarser level; half as many at the finer one
    "syn_coarse_iterations": 40,  # at most, at four times the template's spacing
    "syn_fine_iterations": 20,  # at twice
    "spacing_mm": 0.0,
}
SEED = 1
RIM_MM = 4.0
_BRAIN_LEVEL = 0.05  # of the template's maximum; resampling rings a little around zero


def register(image: Path, out: Path, parameters: dict[str, Any]) -> dict[str, float]:
    """Register ``image`` to the template.

    Parameters
    ----------
    image : Path
        A 3-D volume that ANTs can read: a head, or a brain alone.
    out : Path
        Folder for the results; created if missing.
    parameters : dict
        As `DEFAULTS`.

    Returns
    -------
    dict
        Correlation with the template inside its brain after each step, volume of the brain,
        determinant of the affine transform, range of SyN's Jacobian determinant (percentiles 1 and
        99).

    Raises
    ------
    ConfigError
        If the template's spacing is not 1 to 4 mm.
    ImageError
        If the volume cannot be read, is not 3-D, has no foreground or cannot be registered.
    """
    import ants
    import nilearn.datasets  # noqa: F401  (its import counts as startup)

    if not 1 <= parameters["template_mm"] <= 4:
        raise ConfigError("needs 1 to 4", "template_mm")
    # `registration` takes an argument random_seed and ignores it; this one sets the seed.
    ants.config.set_ants_deterministic(on=False, seed_value=SEED)
    started()
    with phase("load"):
        volume = read_volume(image)
        check_contrast(volume, image)
        template, brain = load_template(parameters["template_mm"])
    if is_finer(volume, parameters["spacing_mm"]):
        with phase("resample"):
            volume = resample(volume, parameters["spacing_mm"])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        with phase("pose"):
            start = f"{scratch}/start.mat"
            ants.write_transform(starting_transform(volume), start)
        with phase("affine"):
            iterations = parameters["affine_iterations"]
            affine = _register(
                image,
                template,
                volume,
                "Affine",
                initial_transform=[start],
                outprefix=f"{scratch}/affine",
                mask=_with_rim(brain),
                mask_all_stages=True,
                aff_iterations=(iterations, iterations // 2),
                # Coarser or smoother levels lose the initial pose and fit the brain to the head.
                aff_shrink_factors=(4, 2),
                aff_smoothing_sigmas=(1, 0),
            )
        with phase("syn"):
            coarse, fine = parameters["syn_coarse_iterations"], parameters["syn_fine_iterations"]
            warp = _register(
                image,
                template,
                volume * _to_volume(brain, volume, affine),
                "SyNOnly",
                initial_transform=affine["fwdtransforms"],
                outprefix=f"{scratch}/syn",
                reg_iterations=(coarse, fine, 0),
            )
        with phase("apply"):
            warped = ants.apply_transforms(template, volume, warp["fwdtransforms"])
            mask = _to_volume(brain, volume, warp)
        with phase("write"):
            after_affine = ants.apply_transforms(template, volume, affine["fwdtransforms"])
            result = {
                "correlation_affine": _correlation(template, after_affine, brain),
                "correlation": _correlation(template, warped, brain),
                "brain_ml": volume_ml(mask),
                **_deformation(template, brain, warp),
            }
            write_volume(out / "warped.nii.gz", warped)
            write_volume(out / "brain_mask.nii.gz", mask.astype("uint8"))
            write_json(out / "result.json", result)
    return result


def load_template(spacing_mm: int) -> tuple[Any, Any]:
    """Return the template (brain only, 0 to 1) and its brain mask as ANTs images."""
    import ants
    from nilearn.datasets import load_mni152_template

    loaded = load_mni152_template(resolution=spacing_mm)
    loaded.header.set_xyzt_units("mm", "sec")  # or ANTs warns that it must guess
    template = ants.from_nibabel_nifti(loaded)
    inside = ndimage.binary_fill_holes(template.numpy() > _BRAIN_LEVEL)
    return template, template.new_image_like(inside.astype(np.float32))


def _with_rim(brain: Any) -> Any:
    outside_mm = ndimage.distance_transform_edt(brain.numpy() == 0, brain.spacing)
    return brain.new_image_like((outside_mm <= RIM_MM).astype(np.float32))


def _register(image: Path, *images: Any, **options: Any) -> dict[str, Any]:
    import ants

    try:
        return dict(ants.registration(*images, **options))
    except RuntimeError as error:
        raise ImageError(f"ANTs cannot register it ({error})", image) from None


def _to_volume(brain: Any, volume: Any, transforms: dict[str, Any]) -> Any:
    """Return the template's brain mask on the grid of the volume."""
    import ants

    files = transforms["invtransforms"]
    return ants.apply_transforms(
        volume,
        brain,
        files,
        # A matrix is stored once, for both directions; a warp has a file for each.
        whichtoinvert=[file.endswith(".mat") for file in files],
        interpolator="nearestNeighbor",
    )


def _correlation(template: Any, warped: Any, brain: Any) -> float:
    inside = brain.numpy() > 0
    values, expected = warped.numpy()[inside], template.numpy()[inside]
    # A registration that missed the brain entirely is constant there.
    return float(np.corrcoef(values, expected)[0, 1]) if values.std() > 0 else 0.0


def _deformation(template: Any, brain: Any, warp: dict[str, Any]) -> dict[str, float]:
    """Return how far affine and SyN stretch: determinants above 1 where the volume is larger."""
    import ants

    field, matrix = warp["fwdtransforms"]
    jacobian = ants.create_jacobian_determinant_image(template, field).numpy()
    low, high = np.percentile(jacobian[brain.numpy() > 0], (1, 99))
    affine = np.array(ants.read_transform(matrix).parameters[:9]).reshape(3, 3)
    return {
        "affine_determinant": float(np.linalg.det(affine)),
        "jacobian_1_percent": float(low),
        "jacobian_99_percent": float(high),
    }


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    options = arguments.parse(argv, DEFAULTS, prog="ants_register", description=__doc__)
    register(cast("Path", options.image), options.out, options.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
