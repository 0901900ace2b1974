"""The network part of `tile_segment` alone: all tiles and their vote, on a CPU or a GPU.

It needs torch, numpy and nibabel, and no ANTs, so it runs on a machine that has only those. The
image is the result of phase ``normalise`` of `tile_segment`: a scan on the network's grid in
MNI152.

Run as ``python -m voxcast_apps.tiles.tile_segment_network --image normalised.nii.gz --out FOLDER
--device gpu``; writes ``labels.nii.gz`` and ``volumes.json``, both on that grid.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.phase_log import phase, started
from voxcast.errors import ImageError, one_line
from voxcast.files import atomic_path, write_json
from voxcast_apps.arguments import Arguments, application

if TYPE_CHECKING:
    import numpy as np

DEFAULTS: dict[str, Any] = {"tiles_per_axis": 3}


def segment(options: Arguments) -> None:
    """Label a normalised volume.

    Raises
    ------
    ImageError
        If the volume cannot be read or is not on the network's grid.
    ConfigError
        If there are too few tiles to cover the grid, or too many.
    RunError
        If a GPU is requested and torch finds none.
    """
    import nibabel

    from voxcast_apps.tiles import grid, network

    started()
    places = grid.tiles(options.parameters["tiles_per_axis"])
    device = options.torch_device()
    with phase("load"):
        normalised = _normalised(options.image, grid.SHAPE)
    with phase("weights"):
        # Moved to the device here, so that its startup does not count as the network's time.
        trained = network.load_weights().to(device)
    with phase("network"):
        tiles = network.label_tiles(normalised, trained, device, places)
    with phase("fusion"):
        fused = grid.fuse(tiles, places, network.CLASSES)
    with phase("write"):
        volumes = grid.volumes_ml(fused, grid.SPACING_MM**3 / 1000.0)
        with atomic_path(options.out / "labels.nii.gz") as partial:
            nibabel.save(nibabel.Nifti1Image(fused, grid.grid_affine()), partial)
        write_json(options.out / "volumes.json", volumes)


def _normalised(image: Path, shape: tuple[int, ...]) -> np.ndarray:
    import nibabel
    import numpy as np

    if not image.is_file():
        raise ImageError("no such file", image)
    try:
        volume: Any = nibabel.load(image)
        array = np.asarray(volume.dataobj, dtype=np.float32)
    except Exception as error:  # nibabel, gzip and zlib raise different types
        raise ImageError(f"cannot be read ({one_line(error)})", image) from None
    if array.shape != shape or not np.isfinite(array).all():
        then = "create it with the steps of `tile_segment` up to `normalise`"
        raise ImageError(f"is not a finite volume of shape {shape}", image, then)
    return array


main = application("tile_segment_network", __doc__, DEFAULTS, segment)

if __name__ == "__main__":
    sys.exit(main())
