"""Affine and SyN registration of a volume to the MNI152 template, by ANTs.

The template is the brain without a skull that nilearn bundles. It is the fixed image, as in
studies that bring many heads into one space, so most of the work is done on its grid. The affine
step uses only the template's brain and a rim around it, and SyN only the brain as the affine step
labels it: a skull has no counterpart in the template.

Run as ``python -m voxcast_apps.ants_register --image T1w.nii.gz --out FOLDER``; writes
``warped.nii.gz`` (the image on the template's grid), ``brain_mask.nii.gz`` (the template's brain
on the image's grid) and ``result.json``. A `correlation` below 0.4 there indicates a failure.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import numpy as np
from scipy import ndimage

from voxcast.apps.phase_log import phase, started
from voxcast.files import write_json
from voxcast_apps.arguments import Accepted, Arguments, application

DEFAULTS: dict[str, Any] = {
    "template_mm": 2,
    "affine_iterations": 1000,  # at most, at the coarser level; half as many at the finer one
    "syn_coarse_iterations": 40,  # at most, at four times the template's spacing
    "syn_fine_iterations": 20,  # at twice
    "spacing_mm": 0.0,
}
ACCEPTED: Accepted = {**dict.fromkeys(DEFAULTS, 0), "template_mm": (1, 4)}
RIM_MM = 4.0
_BRAIN_LEVEL = 0.05  # of the template's maximum; resampling rings a little around zero


def register(options: Arguments) -> None:
    """Register the image, a head or a brain alone, to the template.

    ``result.json`` has the correlation with the template inside its brain after each step, the
    volume of the brain, the determinant of the affine transform, and percentiles 1 and 99 of SyN's
    Jacobian determinant.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, has no foreground or cannot be registered.
    """
    import ants
    import nilearn.datasets  # noqa: F401  (its import counts as startup)

    from voxcast_apps import ants_volume
    from voxcast_apps.tiles.alignment import starting_transform

    image, out, parameters = options.image, options.out, options.parameters
    started()
    with phase("load"):
        volume = ants_volume.read_volume(image)
        template, brain = load_template(parameters["template_mm"])
    volume = ants_volume.coarsened(volume, parameters["spacing_mm"])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        with phase("pose"):
            start = starting_transform(volume, scratch)
        with phase("affine"):
            most = parameters["affine_iterations"]
            outside_mm = ndimage.distance_transform_edt(brain.numpy() == 0, brain.spacing)
            affine = ants_volume.registered(
                image, template, volume, "Affine", scratch,
                initial_transform=[start],
                mask=brain.new_image_like((outside_mm <= RIM_MM).astype(np.float32)),
                mask_all_stages=True,
                aff_iterations=(most, most // 2),
                # Coarser or smoother levels lose the initial pose and fit the brain to the head.
                aff_shrink_factors=(4, 2),
                aff_smoothing_sigmas=(1, 0),
            )  # fmt: skip
        with phase("syn"):
            coarse, fine = parameters["syn_coarse_iterations"], parameters["syn_fine_iterations"]
            stripped = volume * _to_volume(brain, volume, affine)
            warp = ants_volume.registered(
                image, template, stripped, "SyNOnly", scratch,
                initial_transform=affine["fwdtransforms"],
                reg_iterations=(coarse, fine, 0),
            )  # fmt: skip
        with phase("apply"):
            warped = ants.apply_transforms(template, volume, warp["fwdtransforms"])
            mask = _to_volume(brain, volume, warp)
        with phase("write"):
            after_affine = ants.apply_transforms(template, volume, affine["fwdtransforms"])
            result = {
                "correlation_affine": _correlation(template, after_affine, brain),
                "correlation": _correlation(template, warped, brain),
                "brain_ml": ants_volume.volumes_ml(mask, 2)[1],
                **_deformation(template, brain, warp),
            }
            ants_volume.write_volume(out / "warped.nii.gz", warped)
            ants_volume.write_volume(out / "brain_mask.nii.gz", mask.astype("uint8"))
            write_json(out / "result.json", result)


def load_template(spacing_mm: int) -> tuple[Any, Any]:
    """Return the template (brain only, 0 to 1) and its brain mask as ANTs images."""
    import ants
    from nilearn.datasets import load_mni152_template

    loaded = load_mni152_template(resolution=spacing_mm)
    loaded.header.set_xyzt_units("mm", "sec")  # or ANTs warns that it must guess
    template = ants.from_nibabel_nifti(loaded)
    inside = ndimage.binary_fill_holes(template.numpy() > _BRAIN_LEVEL)
    return template, template.new_image_like(inside.astype(np.float32))


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


main = application("ants_register", __doc__, DEFAULTS, register, accepted=ACCEPTED)

if __name__ == "__main__":
    sys.exit(main())
