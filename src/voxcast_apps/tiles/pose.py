"""The pose of the brain in a scan: the template, and a search for it at every place of a grid.

Registration finds a local optimum. A head with neck and shoulders has its centre of mass far below
its brain, and a registration that starts there often stays there. This search takes about a second
and starts it inside the brain. The template is MNI152 as nilearn bundles it, an average of many
heads, skull-stripped.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ants
import numpy as np
from nibabel.affines import apply_affine, from_matvec
from nibabel.spaces import vox2out_vox
from scipy import ndimage, signal
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from voxcast_apps.tiles.grid import AFFINE, SHAPE, SPACING_MM

TO_LPS = np.diag([-1.0, -1.0, 1.0])  # the axes of ANTs point left, posterior and superior
RIM_MM = 4.0  # fluid and bone around the brain, where a head is dark
STEP_MM = 8.0
SCALES = (0.85, 0.92, 0.99, 1.06)
PITCHES_DEG = (-15.0, -7.5, 0.0, 7.5, 15.0)  # a head nods more than it turns or tilts
_ROUNDS = ((None, 100), (3, 300))  # of refining: how many of the best starts, evaluations of each
_EVERY = 101  # one in this many voxels of the template is used
_UNITS = np.array([5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.05])  # degrees, millimetres, log of scale
_HALF_MM = np.array(
    [104.0, 120.0, 104.0]
)  # half the size of a box that contains the template at any angle
_LEAST_CORRELATION = 0.4
_LEAST_SPREAD = 0.05  # of the scan's; a place with less counts as empty


@dataclass(frozen=True)
class Reference:
    """Intensity (white matter near 1), brain, and brain with a rim; all of `grid.SHAPE`.

    `blurred` is the intensity at the resolution of a scan with voxels of `STEP_MM`.
    """

    intensity: np.ndarray
    brain: np.ndarray
    rim: np.ndarray
    blurred: np.ndarray
    centre_mm: np.ndarray


@functools.cache
def reference() -> Reference:
    """Load the template."""
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=1)
    fine = np.asarray(image.dataobj, dtype=np.float32)
    brain = ndimage.binary_fill_holes(fine > 0).astype(np.float32)
    # As in voxcast_apps.heads.template: fluid is brighter in an average than in a scan.
    fine = np.clip((fine / np.percentile(fine[fine > 0], 95) - 0.2) / 0.8, 0.0, None)
    inside = to_grid(brain, image.affine) > 0.5
    rim = ndimage.distance_transform_edt(~inside) * SPACING_MM <= RIM_MM
    intensity = to_grid(fine, image.affine)
    blurred = ndimage.gaussian_filter(intensity, STEP_MM / 2.355 / 2.0)
    centre_mm = apply_affine(AFFINE, ndimage.center_of_mass(inside))
    return Reference(intensity, inside, rim, blurred, centre_mm)


def to_grid(fine: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return a 1 mm map of the template, blurred to the network's grid and put on it, float32."""
    # A voxel of 2 mm blurs like a Gaussian of 2 / 2.355 mm; the map has 1 mm already.
    blurred = ndimage.gaussian_filter(fine.astype(np.float32), (SPACING_MM**2 - 1) ** 0.5 / 2.355)
    to_fine = np.linalg.inv(affine) @ AFFINE  # whole voxels: nothing is interpolated
    return np.asarray(ndimage.affine_transform(blurred, to_fine, output_shape=SHAPE, order=1))


def starting_transform(scan: Any, folder: str | Path) -> str:
    """Write the transform that roughly aligns the template with the brain of the scan.

    It is a rotation, one scale and a shift, from the template's millimetres to those of the scan.

    Parameters
    ----------
    scan : ants.ANTsImage
        A head, or a brain alone; three axes.

    Returns
    -------
    str
        The file, in the folder.
    """
    flip = np.diag([*TO_LPS.diagonal(), 1.0])
    affine = flip @ from_matvec(scan.direction * np.array(scan.spacing), scan.origin)
    shape, grid = vox2out_vox((scan.shape, affine), [STEP_MM] * 3)
    step = np.maximum(1, np.rint(STEP_MM / 2 / np.array(scan.spacing)).astype(int))
    smooth = ndimage.uniform_filter(scan.numpy(), step)  # against noise
    to_scan = np.linalg.inv(affine) @ grid
    coarse = ndimage.affine_transform(smooth, to_scan, output_shape=shape, order=1)
    pose = flip @ find_brain(coarse.astype(np.float64), grid[:3, 3]) @ flip
    transform = ants.create_ants_transform(
        transform_type="AffineTransform",
        precision="double",
        dimension=3,
        matrix=pose[:3, :3],
        translation=pose[:3, 3],
    )
    path = str(Path(folder, "start.mat"))
    ants.write_transform(transform, path)
    return path


def find_brain(scan: np.ndarray, low_mm: np.ndarray) -> np.ndarray:
    """Return the best transform from template to scan millimetres.

    Parameters
    ----------
    scan : numpy.ndarray
        Float, axes right, anterior, superior, `STEP_MM` apart.
    low_mm : numpy.ndarray
        Position of its first voxel.

    Returns
    -------
    numpy.ndarray
        Shape ``(4, 4)``: a rotation, one scale and a translation.
    """
    lowest = scan.min()
    scan = np.minimum((scan - lowest) / (np.percentile(scan, 99) - lowest + 1e-9), 1.5)
    starts = []
    for scale, pitch_deg in itertools.product(SCALES, PITCHES_DEG):
        pose = np.array([pitch_deg, 0.0, 0.0, 0.0, 0.0, 0.0, np.log(scale)])
        fit = _fit_everywhere(scan, *_turned_template(pose))
        pose[3:6] = low_mm + STEP_MM * np.array(np.unravel_index(fit.argmax(), fit.shape))
        starts.append(pose)
    misfit = _misfit(scan, low_mm)
    for number, evaluations in _ROUNDS:
        options = {"maxfev": evaluations, "direc": np.diag(_UNITS)}
        refined = [minimize(misfit, s, method="Powell", options=options) for s in starts[:number]]
        starts = [minimum.x for minimum in sorted(refined, key=lambda minimum: minimum.fun)]
    return _matrix(starts[0])


def _misfit(scan: np.ndarray, low_mm: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the misfit as a function of angles, centre and log scale.

    It is minus the share of the scan's variance that the template explains, multiplied by linear
    gradients to allow for a bias field. That would also accept a negative of the template, so the
    share counts less where the correlation is low.
    """
    index = np.argwhere(reference().rim)[::_EVERY]
    points_mm = apply_affine(AFFINE, index)
    template = reference().blurred[tuple(index.T)]
    slopes = (points_mm - points_mm.mean(axis=0)) / points_mm.std(axis=0)
    regressors = [template, *(template * slopes.T), np.ones_like(template)]
    basis = np.linalg.qr(np.stack(regressors, axis=1))[0]
    centred = (template - template.mean()) / float(np.linalg.norm(template - template.mean()))
    min_total = len(index) * (_LEAST_SPREAD * float(scan.std())) ** 2

    def misfit(parameters: np.ndarray) -> float:
        places = (apply_affine(_matrix(parameters), points_mm) - low_mm) / STEP_MM
        intensities = ndimage.map_coordinates(scan, places.T, order=1)
        total = max(float(((intensities - intensities.mean()) ** 2).sum()), min_total)
        explained = (
            float(((basis.T @ intensities) ** 2).sum())
            - len(index) * float(intensities.mean()) ** 2
        )
        correlation = float(centred @ intensities) / total**0.5
        return float(-explained / total * min(max(correlation / _LEAST_CORRELATION, 0.0), 1.0))

    return misfit


def _matrix(pose: np.ndarray) -> np.ndarray:
    """Return the transform that turns and scales the template's brain about its centre.

    A pose is three angles in degrees, the millimetres to which the centre moves, and the logarithm
    of the scale.
    """
    turn = np.exp(pose[6]) * Rotation.from_euler("xyz", pose[:3], degrees=True).as_matrix()
    return np.asarray(from_matvec(turn, pose[3:6] - turn @ reference().centre_mm))


def _turned_template(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intensity and rim of a template whose centre is in the middle of a box."""
    half = np.ceil(_HALF_MM / STEP_MM).astype(int)
    box = from_matvec(np.diag([STEP_MM] * 3), -STEP_MM * half)
    to_grid = np.linalg.inv(AFFINE) @ np.linalg.inv(_matrix(pose)) @ box
    intensity, rim = (
        ndimage.affine_transform(m, to_grid, output_shape=tuple(2 * half + 1), order=1)
        for m in (reference().blurred, reference().rim.astype(np.float32))
    )
    return intensity, (rim > 0.5).astype(np.float64)


def _fit_everywhere(scan: np.ndarray, template: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the correlation inside the mask, with the template centred on each voxel."""
    count = mask.sum()
    centred = (template - (template * mask).sum() / count) * mask

    def sums(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(signal.correlate(values, weights, mode="same", method="fft"))

    variance = sums(scan**2, mask) / count - (sums(scan, mask) / count) ** 2
    spread = np.sqrt(np.clip(variance, (_LEAST_SPREAD * scan.std()) ** 2, None))
    norm = float(np.sqrt((centred**2).sum() / count))
    return np.asarray(sums(scan, centred) / (count * spread * norm))
