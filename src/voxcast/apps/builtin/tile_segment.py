"""Tissue segmentation with the structure of SLANT, but another network and other labels.

Affine registration to MNI152, N4, intensity normalisation, 27 overlapping tiles through a 3-D
U-Net, majority vote, and the inverse transform to the scan's own grid. Labels: 0 background,
1 CSF, 2 grey and 3 white matter. The network was trained on generated heads, not on real ones.

Run as ``python -m voxcast.apps.builtin.tile_segment --image T1w.nii.gz --out FOLDER``; writes
``labels.nii.gz`` and ``volumes.json``.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from voxcast.apps.builtin.arguments import parse
from voxcast.apps.phase_log import phase, started
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json

DEFAULTS: dict[str, Any] = {
    "spacing_mm": 0.0,  # finest spacing of an axis; 0 for that of the scan
    "affine_iterations": 1.0,  # scale of the registration's iterations
    "n4_iterations": 30,  # of each of four levels
    "tiles_per_axis": 3,
}


def segment(
    image: Path,
    out: Path,
    parameters: dict[str, Any],
    device: str = "cpu",
    weights_file: Path | None = None,
) -> dict[str, float]:
    """Segment ``image`` into tissues and write them to ``out``.

    Parameters
    ----------
    image : Path
        A 3-D T1-weighted volume that ANTs can read.
    out : Path
        Folder for ``labels.nii.gz`` and ``volumes.json``; created if missing.
    parameters : dict
        As `DEFAULTS`.
    device : str
        ``cpu`` or ``gpu``, where the network runs.
    weights_file : Path, optional
        Weights to use instead of the installed ones.

    Returns
    -------
    dict
        Volume of each tissue in millilitres.

    Raises
    ------
    ImageError
        If the volume cannot be read, is not 3-D, or holds one value only.
    ConfigError
        If a parameter is out of range.
    RunError
        If a GPU is requested and torch finds none.
    """
    import ants  # noqa: F401 - here, so that it counts as startup

    from voxcast.apps.builtin.ants_volume import write_volume
    from voxcast.apps.builtin.tiles import (
        alignment,
        network,
        reference,
        tiling,
        tissue_classes,
        weights,
    )
    from voxcast.apps.builtin.torch_device import torch_device

    _check(parameters)
    started()
    places = tiling.tiles(parameters["tiles_per_axis"])
    compute_device = torch_device(device)
    with phase("load"):
        scan = _read(image, parameters["spacing_mm"])
        reference.reference()
    with tempfile.TemporaryDirectory(prefix="tile_segment-") as folder:
        with phase("affine"):
            aligned, transform = alignment.register(
                scan, parameters["affine_iterations"], Path(folder)
            )
        with phase("n4"):
            corrected = alignment.correct_bias(aligned, parameters["n4_iterations"])
        with phase("normalise"):
            normalised = alignment.normalise(corrected.numpy())
        with phase("network"):
            trained = weights.load(weights_file or weights.PATH)
            tiles = network.label_tiles(normalised, trained, compute_device, places)
        with phase("fusion"):
            fused = tiling.fuse(tiles, places, network.CLASSES)
        with phase("inverse"):
            labels = alignment.to_native(fused, scan, transform)
    with phase("write"):
        volumes = tissue_classes.volumes_ml(labels.numpy(), math.prod(labels.spacing) / 1000.0)
        write_volume(out / "labels.nii.gz", labels.astype("uint8"))
        write_json(out / "volumes.json", volumes)
    return volumes


def _check(parameters: dict[str, Any]) -> None:
    for name, low, high in (
        ("affine_iterations", 0, 100),
        ("n4_iterations", 1, 1000),
    ):
        if not low <= parameters[name] <= high:
            raise ConfigError(f"needs {low} to {high}, not {parameters[name]}", name)


def _read(image: Path, spacing_mm: float) -> Any:
    """Read the scan, resampled so that no axis is finer than ``spacing_mm``."""
    import numpy as np

    from voxcast.apps.builtin.ants_volume import (
        check_contrast,
        is_finer,
        read_volume,
        resample,
    )

    scan = read_volume(image)
    array = scan.numpy()
    if not np.isfinite(array).all():
        scan = scan.new_image_like(np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0))
    check_contrast(scan, image)
    return resample(scan, spacing_mm) if is_finer(scan, spacing_mm) else scan


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    options = parse(argv, DEFAULTS, prog="tile_segment", description=__doc__)
    if options.image is None:
        raise ConfigError("needs an image", "--image")
    segment(options.image, options.out, options.parameters, options.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
