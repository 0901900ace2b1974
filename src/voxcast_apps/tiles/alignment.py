"""From a scan to the network's grid and back: affine registration, N4, intensities, inverse.

Needs ANTs. The steps and their order are SLANT's, which uses NiftyReg for the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ants
import numpy as np

from voxcast_apps import ants_volume
from voxcast_apps.tiles.grid import LOW_MM, SPACING_MM
from voxcast_apps.tiles.pose import TO_LPS, reference, starting_transform

# Of each level of the registration, coarse to fine, at a scale of 1. Coarser levels could lose the
# initial pose, which is accurate to a voxel or two.
AFFINE_ITERATIONS = (100, 50, 10)
AFFINE_SHRINK = (4, 2, 1)
AFFINE_SMOOTHING = (2, 1, 0)
INTENSITY_STEP = 1 / 32  # a fifth of the noise of a very clean scan


def on_grid(array: np.ndarray) -> Any:
    """Return an array on the network's grid as an ANTs image."""
    return ants.from_numpy(
        array.astype(np.float32),
        origin=list(TO_LPS @ LOW_MM),
        spacing=[SPACING_MM] * 3,
        direction=TO_LPS,
    )


def register(image: Path, scan: Any, iterations: float, folder: Path) -> tuple[Any, str]:
    """Register a scan to the template by an affine transform.

    Parameters
    ----------
    image : Path
        From which the scan was read.
    scan : ants.ANTsImage
        Three axes.
    iterations : float
        Scale of `AFFINE_ITERATIONS`.
    folder : Path
        Where the transform is written.

    Returns
    -------
    ants.ANTsImage, str
        The scan on the network's grid, and the transform's file.

    Raises
    ------
    ImageError
        If ANTs cannot register it.
    """
    registration = ants_volume.registered(
        image, on_grid(reference().intensity), scan, "Affine", folder,
        initial_transform=[starting_transform(scan, folder)],
        mask=on_grid(reference().rim),
        aff_iterations=tuple(round(n * iterations) for n in AFFINE_ITERATIONS),
        aff_shrink_factors=AFFINE_SHRINK,
        aff_smoothing_sigmas=AFFINE_SMOOTHING,
    )  # fmt: skip
    return registration["warpedmovout"], registration["fwdtransforms"][0]


def correct_bias(aligned: Any, iterations: int) -> Any:
    """Correct the bias field by N4 on the network's grid, inside the template's brain and rim."""
    return ants_volume.n4(aligned, on_grid(reference().rim), iterations=iterations)


def normalise(corrected: np.ndarray) -> np.ndarray:
    """Return intensities with the brain near 0 and of unit spread, float32.

    Median and spread are taken inside the template's brain, so that skull and fat have no
    influence. The result is clipped to -4 to 4 and rounded to `INTENSITY_STEP`, so that a file of
    small integers holds exactly the input of the network.
    """
    p5, median, p95 = np.percentile(corrected[reference().brain], (5, 50, 95))
    spread = max(float(p95 - p5) / 2, 1e-6)
    scaled = np.clip((corrected - median) / spread, -4, 4)
    return np.asarray(np.rint(scaled / INTENSITY_STEP) * INTENSITY_STEP, dtype=np.float32)


def to_native(labels: np.ndarray, scan: Any, transform: str) -> Any:
    """Return labels of the network's grid on the grid of the scan."""
    return ants.apply_transforms(
        fixed=scan,
        moving=on_grid(labels),
        transformlist=[transform],
        whichtoinvert=[True],
        interpolator="genericLabel",
    )
