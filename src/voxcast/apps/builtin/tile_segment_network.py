"""The network part of `tile_segment` alone: all tiles and their vote, on a CPU or a GPU.

It needs torch, numpy and nibabel, and no ANTs, so it runs on a machine that has only those. The
image is what phase ``normalise`` of `tile_segment` makes: a scan on the network's grid in MNI152.

Run as ``python -m voxcast.apps.builtin.tile_segment_network --image normalised.nii.gz --out
FOLDER --device gpu``; writes ``labels.nii.gz`` and ``volumes.json``, both on that grid.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.builtin.arguments import parse
from voxcast.apps.phase_log import phase, started
from voxcast.errors import ConfigError, ImageError, exits_cleanly, one_line
from voxcast.files import atomic_path, write_json

if TYPE_CHECKING:
    import numpy as np

DEFAULTS: dict[str, Any] = {"tiles_per_axis": 3}


def segment_normalised(
    image: Path, out: Path, parameters: dict[str, Any], device: str = "cpu"
) -> dict[str, float]:
    """Label a normalised volume and write labels and volumes to ``out``.

    Parameters
    ----------
    image : Path
        A volume on `tiling`'s grid, normalised as `tiles.alignment.normalise` does.
    out : Path
        Folder for ``labels.nii.gz`` and ``volumes.json``; created if missing.
    parameters : dict
        As `DEFAULTS`.
    device : str
        ``cpu`` or ``gpu``.

    Returns
    -------
    dict
        Volume of each tissue in millilitres, in MNI152 space.

    Raises
    ------
    ImageError
        If the volume cannot be read or is not on the network's grid.
    ConfigError
        If there are too few tiles to cover the grid, or too many.
    RunError
        If a GPU is requested and torch finds none.
    """
    from voxcast.apps.builtin.tiles import network, tiling, tissue_classes, weights
    from voxcast.apps.builtin.torch_device import torch_device

    started()
    places = tiling.tiles(parameters["tiles_per_axis"])
    compute_device = torch_device(device)
    with phase("load"):
        normalised = _read(image)
    with phase("weights"):
        # Moved to the device here, so that its startup does not count as the network's time.
        trained = weights.load().to(compute_device)
    with phase("network"):
        tiles = network.label_tiles(normalised, trained, compute_device, places)
    with phase("fusion"):
        fused = tiling.fuse(tiles, places, network.CLASSES)
    with phase("write"):
        volumes = tissue_classes.volumes_ml(fused, tiling.SPACING_MM**3 / 1000.0)
        _write(out / "labels.nii.gz", fused)
        write_json(out / "volumes.json", volumes)
    return volumes


def _read(image: Path) -> np.ndarray:
    import nibabel
    import numpy as np

    from voxcast.apps.builtin.tiles.tiling import SHAPE

    then = "create it with the steps of `tile_segment` up to `normalise`"
    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume: Any = nibabel.load(image)
        array = np.asarray(volume.dataobj, dtype=np.float32)
    except Exception as error:  # nibabel, gzip and zlib raise different types
        raise ImageError(f"cannot be read ({one_line(error)})", image) from None
    if array.shape != SHAPE or not np.isfinite(array).all():
        raise ImageError(f"is not a finite volume of shape {SHAPE}", image, then)
    return array


def _write(path: Path, labels: np.ndarray) -> None:
    import nibabel

    from voxcast.apps.builtin.tiles.tiling import grid_affine

    with atomic_path(path) as partial:
        nibabel.save(nibabel.Nifti1Image(labels, grid_affine()), partial)


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    options = parse(argv, DEFAULTS, prog="tile_segment_network", description=__doc__)
    if options.image is None:
        raise ConfigError("needs an image", "--image")
    segment_normalised(options.image, options.out, options.parameters, options.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
