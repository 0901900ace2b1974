"""Foreground mask, N4 bias correction and Atropos three-class segmentation, by ANTs.

``ants.get_mask`` finds the foreground, not the brain, and Atropos sorts voxels by intensity: on a
head with skull the classes are classes, not brain tissues. What this application is for is its
cost, which depends on the image as that of many iterative programs does.

Run as ``python -m voxcast.apps.builtin.ants_segment --image T1w.nii.gz --out FOLDER``; writes
``labels.nii.gz`` and ``volumes.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from voxcast.apps.catalogue import THREAD_VARIABLES
from voxcast.apps.phase_log import phase, started
from voxcast.errors import ConfigError, ImageError, exits_cleanly
from voxcast.files import atomic_path, write_json

DEFAULTS: dict[str, Any] = {
    "n4_shrink_factor": 4,
    "n4_iterations": 50,
    "n4_tolerance": 1e-7,
    "atropos_classes": 3,
    "atropos_iterations": 30,
    "atropos_tolerance": 5e-4,
}
N4_LEVELS = 4


def segment(image: Path, out: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Segment ``image`` into intensity classes and write them to ``out``.

    Parameters
    ----------
    image : Path
        A 3-D volume that ANTs can read.
    out : Path
        Folder for ``labels.nii.gz`` and ``volumes.json``; made if missing.
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
        volume = _read(image)
    with phase("mask"):
        mask = ants.get_mask(volume)
        # On a volume of one value ANTs calls everything foreground, and Atropos fails later.
        if not mask.sum() > 0 or not volume.max() > volume.min():
            raise ImageError("has no foreground to segment", image, "look at it in a viewer")
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
        out.mkdir(parents=True, exist_ok=True)
        with atomic_path(out / "labels.nii.gz") as partial:
            ants.image_write(labels.astype("uint8"), str(partial))
        write_json(out / "volumes.json", volumes)
    return volumes


def _read(image: Path) -> Any:
    import ants

    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume = ants.image_read(str(image))
    except (RuntimeError, ValueError) as error:
        raise ImageError(f"ANTs cannot read it ({error})", image) from None
    if volume.dimension != 3 or volume.components != 1:
        raise ImageError("is not one 3-D volume", image)
    return volume


def _volumes_ml(mask: Any, labels: Any, classes: int) -> dict[str, Any]:
    import numpy as np

    voxel_ml = float(np.prod(labels.spacing)) / 1000.0
    counts = np.bincount(labels.numpy().astype(np.int64).ravel(), minlength=classes + 1)
    return {
        "mask_ml": float(mask.sum()) * voxel_ml,
        "classes_ml": {str(n): float(counts[n]) * voxel_ml for n in range(1, classes + 1)},
    }


def _parameters(text: str) -> dict[str, Any]:
    given = json.loads(text)
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        known = ", ".join(sorted(DEFAULTS))
        raise ConfigError("unknown parameter", unknown[0], f"known are: {known}")
    return {**DEFAULTS, **given}


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    parser = argparse.ArgumentParser(prog="ants_segment", description=__doc__)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1, help="unless the environment says")
    parser.add_argument("--parameters", default="{}", help="JSON, see DEFAULTS")
    args = parser.parse_args(argv)
    for name in THREAD_VARIABLES:  # read by ITK and OpenMP when they are loaded
        os.environ.setdefault(name, str(args.threads))
    segment(args.image, args.out, _parameters(args.parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
