"""The initial transform of a registration to the template: `find_brain` in ANTs coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxcast.apps.builtin.tiles.coarse_search import STEP_MM, find_brain

TO_LPS = np.diag([-1.0, -1.0, 1.0])  # the axes of ANTs point left, posterior and superior


def starting_transform(scan: Any) -> Any:
    """Return the transform that roughly aligns the template with the brain of the scan.

    Parameters
    ----------
    scan : ants.ANTsImage
        A head, or a brain alone; three axes.

    Returns
    -------
    ants.ANTsTransform
        From the template's millimetres to those of the scan: a rotation, one scale, a shift.
    """
    import ants

    coarse, low_mm = _coarse(scan)
    pose = find_brain(coarse, low_mm)
    flip = np.diag([*TO_LPS.diagonal(), 1.0])
    pose = flip @ pose @ flip
    return ants.create_ants_transform(
        transform_type="AffineTransform",
        precision="double",
        dimension=3,
        matrix=pose[:3, :3],
        translation=pose[:3, 3],
    )


def _coarse(scan: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the scan at `STEP_MM`, its axes right, anterior, superior, and its corner."""
    import ants

    array, spacing_mm = scan.numpy(), np.array(scan.spacing)
    step = np.maximum(1, np.rint(STEP_MM / 2 / spacing_mm).astype(int))
    for axis, n in enumerate(step):  # block means, against noise
        multiple = array.shape[axis] // n * n
        array = array.take(range(multiple), axis=axis)
        shape = (*array.shape[:axis], multiple // n, n, *array.shape[axis + 1 :])
        array = array.reshape(shape).mean(axis=axis + 1)
    shift = scan.direction @ (spacing_mm * (step - 1) / 2)
    small = ants.from_numpy(
        np.ascontiguousarray(array),
        origin=list(np.array(scan.origin) + shift),
        spacing=list(spacing_mm * step),
        direction=scan.direction,
    )
    corners = np.stack(np.meshgrid(*[(0, n - 1) for n in scan.shape], indexing="ij"), -1)
    points = corners.reshape(-1, 3) * spacing_mm @ scan.direction.T + np.array(scan.origin)
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.ceil((high - low) / STEP_MM).astype(int) + 1
    # The grid's first two axes are flipped, so its corner has the highest left and posterior.
    origin = np.array([high[0], high[1], low[2]])
    target = ants.from_numpy(
        np.zeros(size, np.float32), origin=list(origin), spacing=[STEP_MM] * 3, direction=TO_LPS
    )
    moved = ants.resample_image_to_target(small, target, interp_type="linear")
    return moved.numpy().astype(np.float64), TO_LPS @ origin
