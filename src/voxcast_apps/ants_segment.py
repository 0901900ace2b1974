"""Foreground mask, N4 bias correction and Atropos three-class segmentation, by ANTs.

``ants.get_mask`` finds the foreground, not the brain, and Atropos sorts voxels by intensity: on a
head with skull the classes are not brain tissues. The application is meant as a workload: its
cost depends on the image as the cost of many iterative programs does.

Run as ``python -m voxcast_apps.ants_segment --image T1w.nii.gz --out FOLDER``; writes
``labels.nii.gz`` and ``volumes.json``.
"""

from __future__ import annotations

import sys
from typing import Any

from voxcast.apps.phase_log import phase, started
from voxcast.files import write_json
from voxcast_apps.arguments import Accepted, Arguments, application

DEFAULTS: dict[str, Any] = {
    "n4_shrink_factor": 4,
    "n4_iterations": 50,
    "n4_tolerance": 1e-7,
    "atropos_classes": 3,
    "atropos_iterations": 30,
    "atropos_tolerance": 5e-4,
    "spacing_mm": 0.0,
}
ACCEPTED: Accepted = {
    **dict.fromkeys(("n4_shrink_factor", "n4_iterations", "atropos_iterations"), 1),
    "atropos_classes": 2,
    "spacing_mm": 0,
}


def segment(options: Arguments) -> None:
    """Segment the image into intensity classes.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or has no foreground.
    """
    import ants

    from voxcast_apps import ants_volume

    parameters = options.parameters
    started()
    with phase("load"):
        volume = ants_volume.read_volume(options.image)
    volume = ants_volume.coarsened(volume, parameters["spacing_mm"])
    with phase("mask"):
        mask = ants.get_mask(volume)
        ants_volume.check_foreground(mask.sum() > 0, options.image)
    with phase("n4"):
        corrected = ants_volume.n4(
            volume,
            mask,
            iterations=parameters["n4_iterations"],
            shrink_factor=parameters["n4_shrink_factor"],
            tolerance=parameters["n4_tolerance"],
        )
    classes = parameters["atropos_classes"]
    with phase("atropos"):
        labels = ants.atropos(
            a=corrected,
            x=mask,
            i=f"kmeans[{classes}]",
            m="[0.2,1x1x1]",
            c=f"[{parameters['atropos_iterations']},{parameters['atropos_tolerance']}]",
        )["segmentation"]
    with phase("write"):
        classes_ml = ants_volume.volumes_ml(labels, classes + 1)
        volumes = {
            "mask_ml": ants_volume.volumes_ml(mask, 2)[1],
            "classes_ml": {str(n): classes_ml[n] for n in range(1, classes + 1)},
        }
        ants_volume.write_volume(options.out / "labels.nii.gz", labels.astype("uint8"))
        write_json(options.out / "volumes.json", volumes)


main = application("ants_segment", __doc__, DEFAULTS, segment, accepted=ACCEPTED)

if __name__ == "__main__":
    sys.exit(main())
