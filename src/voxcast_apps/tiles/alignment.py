"""From a scan to the network's grid and back: pose, affine registration, N4, intensities.

The steps and their order are SLANT's, which uses NiftyReg for the registration. It finds a local
optimum: a head with neck and shoulders has its centre of mass far below its brain, and a
registration that starts there often stays there. So a search for the brain's pose, at every place
of a grid, comes first; it takes about a second. The template is MNI152 as nilearn bundles it, an
average of many heads, skull-stripped.
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

from voxcast_apps import ants_volume
from voxcast_apps.tiles.grid import AFFINE, LOW_MM, SHAPE, SPACING_MM

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
