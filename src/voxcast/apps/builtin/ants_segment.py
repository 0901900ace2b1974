"""Foreground mask, N4 bias correction and Atropos three-class segmentation, by ANTs.

``ants.get_mask`` finds the foreground, not the brain, and Atropos sorts voxels by intensity: on a
head with skull the classes are not brain tissues. The application is meant as a workload: its
cost depends on the image as that of many iterative programs does.

Run as ``python -m voxcast.apps.builtin.ants_segment --image T1w.nii.gz --out FOLDER``; writes
``labels.nii.gz`` and ``volumes.json``.
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
    "n4_shrink_factor": 4,
    "n4_iterations": 50,
    "n4_tolerance": 1e-7,
    "atropos_classes": 3,
    "atropos_iterations": 30,
    "atropos_tolerance": 5e-4,
    "spacing_mm": 0.0,
}
N4_LEVELS = 4


def segment(image: Path, out: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Segment ``image`` into intensity classes and write them to ``out``.

    Parameters
    ----------
    image : Path
        A 3-D volume that ANTs can read.
    out : Path
        Folder for ``labels.nii.gz`` and ``volumes.json``; created if missing.
    parameters : dict
        As `DEFAULTS`.

    Returns
    -------
    dict
        Volume of the mask and of each class in millilitres.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or has no foreground.
    """
    import ants

    started()
    with phase("load"):
        volume = read_volume(image)
    if is_finer(volume, parameters["spacing_mm"]):
        with phase("resample"):
            volume = resample(volume, parameters["spacing_mm"])
    with phase("mask"):
        mask = foreground(volume, image)
    with phase("n4"):
        iterations = [parameters["n4_iterations"]] * N4_LEVELS
        corrected = ants.n4_bias_field_correction(
            volume,
            mask=mask,
            shrink_factor=parameters["n4_shrink_factor"],
            convergence={"iters": iterations, "tol": parameters["n4_tolerance"]},
        )
    with phase("atropos"):
        labels = ants.atropos(
            a=corrected,
            x=mask,
            i=f"kmeans[{parameters['atropos_classes']}]",
            m="[0.2,1x1x1]",
            c=f"[{parameters['atropos_iterations']},{parameters['atropos_tolerance']}]",
        )["segmentation"]
    with phase("write"):
        volumes = _volumes_ml(mask, labels, parameters["atropos_classes"])
        write_volume(out / "labels.nii.gz", labels.astype("uint8"))
        write_json(out / "volumes.json", volumes)
    return volumes


def _volumes_ml(mask: Any, labels: Any, classes: int) -> dict[str, Any]:
    import numpy as np

    voxel_ml = float(np.prod(labels.spacing)) / 1000.0
    counts = np.bincount(labels.numpy().astype(np.int64).ravel(), minlength=classes + 1)
    return {
        "mask_ml": volume_ml(mask),
        "classes_ml": {str(n): float(counts[n]) * voxel_ml for n in range(1, classes + 1)},
    }


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    options = arguments.parse(argv, DEFAULTS, prog="ants_segment", description=__doc__)
    segment(cast("Path", options.image), options.out, options.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
