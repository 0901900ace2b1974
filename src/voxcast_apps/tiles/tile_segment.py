"""Tissue segmentation with the structure of SLANT, but another network and other labels.

Affine registration to MNI152, N4, intensity normalisation, 27 overlapping tiles through a 3-D
U-Net, majority vote, and the inverse transform to the scan's own grid. Labels: 0 background,
1 CSF, 2 grey and 3 white matter. The network was trained on generated heads, not on real ones.

Run as ``python -m voxcast_apps.tiles.tile_segment --image T1w.nii.gz --out FOLDER``; writes
``labels.nii.gz`` and ``volumes.json``, the volume of each tissue in millilitres.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from voxcast.apps.phase_log import phase, started
from voxcast.files import write_json
from voxcast_apps.arguments import Accepted, Arguments, application

DEFAULTS: dict[str, Any] = {
    "spacing_mm": 0.0,  # finest spacing of an axis; 0 for the spacing of the scan
    "affine_iterations": 1.0,  # scale of the registration's iterations
    "n4_iterations": 30,  # of each of four levels
    "tiles_per_axis": 3,
}
ACCEPTED: Accepted = {
    "spacing_mm": 0,
    "affine_iterations": (0, 100),
    "n4_iterations": (1, 1000),
    "tiles_per_axis": (2, 5),  # fewer do not cover the grid, more only add votes
}


def segment(options: Arguments, weights_file: Path | None = None) -> None:
    """Segment a T1-weighted image into tissues.

    Parameters
    ----------
    weights_file : Path, optional
        Weights to use instead of the installed ones.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or holds one value only.
    RunError
        If a GPU is requested and torch finds none.
    """
    from voxcast_apps import ants_volume
    from voxcast_apps.tiles import alignment, grid, network

    parameters = options.parameters
    started()
    places = grid.tiles(parameters["tiles_per_axis"])
    device = options.torch_device()
    with phase("load"):
        scan = ants_volume.read_volume(options.image)
        scan = ants_volume.coarsened(scan, parameters["spacing_mm"], logged=False)
        alignment.reference()
    with tempfile.TemporaryDirectory(prefix="tile_segment-") as folder:
        with phase("affine"):
            iterations = parameters["affine_iterations"]
            aligned, transform = alignment.register(options.image, scan, iterations, Path(folder))
        with phase("n4"):
            corrected = alignment.correct_bias(aligned, parameters["n4_iterations"])
        with phase("normalise"):
            normalised = alignment.normalise(corrected.numpy())
        with phase("network"):
            trained = network.load_weights(weights_file or network.WEIGHTS)
            tiles = network.label_tiles(normalised, trained, device, places)
        with phase("fusion"):
            fused = grid.fuse(tiles, places, network.CLASSES)
        with phase("inverse"):
            labels = alignment.to_native(fused, scan, transform)
    with phase("write"):
        volumes_ml = ants_volume.volumes_ml(labels, len(grid.TISSUES))
        volumes = {f"{n}_ml": ml for n, ml in zip(grid.TISSUES, volumes_ml, strict=True)}
        ants_volume.write_volume(options.out / "labels.nii.gz", labels.astype("uint8"))
        write_json(options.out / "volumes.json", volumes)


main = application("tile_segment", __doc__, DEFAULTS, segment, accepted=ACCEPTED)

if __name__ == "__main__":
    sys.exit(main())
