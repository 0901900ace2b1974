"""Foreground mask and N4 bias field correction, by ANTs.

Run as ``python -m voxcast.apps.builtin.ants_n4 --image T1w.nii.gz --out FOLDER``; writes
``corrected.nii.gz`` and ``result.json``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from voxcast.apps.builtin import arguments
from voxcast.apps.builtin.ants_volume import (
    foreground,
    is_finer,
    read_volume,
    resample,
    volume_ml,
    write_volume,
)
from voxcast.apps.phase_log import phase, started
from voxcast.errors import exits_cleanly
from voxcast.files import write_json

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS: dict[str, Any] = {
    "shrink_factor": 4,
    "iterations": 50,  # at most, on each of the four levels
    "tolerance": 1e-7,
    "spacing_mm": 0.0,
}
LEVELS = 4


def correct(image: Path, out: Path, parameters: dict[str, Any]) -> dict[str, float]:
    """Correct ``image`` for its bias field.

    Parameters
    ----------
    image : Path
        A 3-D volume that ANTs can read.
    out : Path
        Folder for ``corrected.nii.gz`` and ``result.json``; created if missing.
    parameters : dict
        As `DEFAULTS`.

    Returns
    -------
    dict
        Volume of the mask in millilitres, smallest and largest bias inside it (a factor).

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or has no foreground.
    """
    import ants
    import numpy as np

    started()
    with phase("load"):
        volume = read_volume(image)
    if is_finer(volume, parameters["spacing_mm"]):
        with phase("resample"):
            volume = resample(volume, parameters["spacing_mm"])
    with phase("mask"):
        mask = foreground(volume, image)
    with phase("n4"):
        bias = ants.n4_bias_field_correction(
            volume,
            mask=mask,
            shrink_factor=parameters["shrink_factor"],
            convergence={
                "iters": [parameters["iterations"]] * LEVELS,
                "tol": parameters["tolerance"],
            },
            return_bias_field=True,
        )
        inside = mask.numpy() > 0
        # ANTs corrects inside its mask only: outside it the field is extrapolated.
        voxels = np.divide(volume.numpy(), bias.numpy(), where=inside, out=volume.numpy())
        corrected = volume.new_image_like(voxels)
    with phase("write"):
        field = bias.numpy()[inside]
        result = {
            "mask_ml": volume_ml(mask),
            "bias_min": float(field.min()),
            "bias_max": float(field.max()),
        }
        write_volume(out / "corrected.nii.gz", corrected)
        write_json(out / "result.json", result)
    return result


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    options = arguments.parse(argv, DEFAULTS, prog="ants_n4", description=__doc__)
    correct(cast("Path", options.image), options.out, options.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
