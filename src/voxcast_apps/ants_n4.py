"""Foreground mask and N4 bias field correction, by ANTs.

Run as ``python -m voxcast_apps.ants_n4 --image T1w.nii.gz --out FOLDER``; writes
``corrected.nii.gz`` and ``result.json``: the volume of the mask in millilitres, and the smallest
and the largest bias inside it, a factor.
"""

from __future__ import annotations

import sys
from typing import Any

from voxcast.apps.phase_log import phase
from voxcast.files import write_json
from voxcast_apps.arguments import Arguments, application

DEFAULTS: dict[str, Any] = {
    "shrink_factor": 4,
    "iterations": 50,  # at most, on each of the four levels
    "tolerance": 1e-7,
    "spacing_mm": 0.0,
}


def correct(options: Arguments) -> None:
    """Correct the image for its bias field.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or has no foreground.
    """
    import numpy as np

    from voxcast_apps import ants_volume

    parameters = options.parameters
    volume, mask = ants_volume.masked_volume(options)
    with phase("n4"):
        n4_settings = {n: parameters[n] for n in ("shrink_factor", "iterations", "tolerance")}
        bias = ants_volume.n4(volume, mask, **n4_settings, bias_field=True)
        inside = mask.numpy() > 0
        # ANTs corrects inside its mask only: outside it the field is extrapolated.
        voxels = np.divide(volume.numpy(), bias.numpy(), where=inside, out=volume.numpy())
        corrected = volume.new_image_like(voxels)
    with phase("write"):
        field = bias.numpy()[inside]
        result = {
            "mask_ml": ants_volume.volume_ml(mask),
            "bias_min": float(field.min()),
            "bias_max": float(field.max()),
        }
        ants_volume.write_volume(options.out / "corrected.nii.gz", corrected)
        write_json(options.out / "result.json", result)


main = application("ants_n4", __doc__, DEFAULTS, correct)

if __name__ == "__main__":
    sys.exit(main())
