"""Characteristics of a volume that its header does not hold: each with unit, cost and source.

The most informative is the extent of the foreground: the mask of ANTs' `get_mask` decides how many
voxels bias correction and segmentation work on. None depends on the intensity scale.

Each characteristic has a version. A table of volumes states the versions of each row as JSON, and
values of another version count as unknown.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from voxcast.files import canonical_json

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.images.volume import VolumeContents


class Characteristic(NamedTuple):
    """A number that the voxels tell and the header does not.

    Attributes
    ----------
    name : str
        Name of its column; sizes end in ``_voxels`` or ``_ml``.
    meaning : str
        Its meaning, in a few words.
    unit : str
        ``share`` is from 0 to 1, ``ratio`` is not.
    source : str
        The paper or the definition.
    version : int
        Raised whenever its values change: values of another version are not used.
    """

    name: str
    meaning: str
    unit: str
    source: str
    version: int = 1


_ANTS = "mask of ANTs' get_mask, as antspyx 0.6.3 computes it"
_PERCENTILES = "definition; the percentiles of Nyúl and Udupa 1999"

CHARACTERISTICS = {
    row[0]: Characteristic(*row)
    for row in (
        ("foreground_voxels", "voxels of the native grid in the foreground mask",
         "voxels", _ANTS),
        ("foreground_ml", "volume of the foreground mask in millilitres",
         "ml", _ANTS),
        ("foreground_fraction", "share of the grid in the foreground mask",
         "share", _ANTS),
        ("above_mean_fraction", "share of the grid at or above the mean intensity",
         "share", "threshold of ANTs' get_mask"),
        ("eroded_fraction", "share of the mask that is left in its largest piece after erosion",
         "share", _ANTS),
        ("foreground_extent_fraction", "share of the grid in the mask's bounding box",
         "share", _ANTS),
        ("foreground_surface_ratio", "sides of voxels around the mask over a sphere's surface",
         "ratio", "inverse of sphericity, Wadell 1935"),
        ("component_count", "pieces above the mean of at least 10 voxels of the coarse grid",
         "pieces", "definition; 6-connected pieces"),
        ("zero_fraction", "share of the grid at the lowest intensity",
         "share", "definition"),
        ("p10_over_p99", "10th over 99th percentile of intensity above the lowest",
         "share", _PERCENTILES),
        ("p50_over_p99", "50th over 99th percentile of intensity above the lowest",
         "share", _PERCENTILES),
        ("p90_over_p99", "90th over 99th percentile of intensity above the lowest",
         "share", _PERCENTILES),
        ("foreground_p10_over_p90", "10th over 90th percentile of intensity in the foreground",
         "share", _PERCENTILES),
        ("foreground_variation", "standard deviation over mean intensity in the foreground",
         "ratio", "definition; coefficient of variation"),
        ("entropy_bits", "entropy of 64 intensity classes in the foreground",
         "bits", "Shannon 1948"),
        ("noise_ratio", "noise in the foreground over its median intensity",
         "ratio", "median of second differences, after Immerkær 1996"),
        ("background_noise_ratio", "median background over median foreground intensity",
         "ratio", "definition"),
        ("gradient_energy", "mean squared step between neighbours over squared median",
         "ratio", "definition"),
        ("bias_strength", "spread of a quadratic fitted to log intensity in the foreground",
         "ratio", "polynomial bias field of Van Leemput et al. 1999"),
        ("asymmetry", "share of left-right mirrored foreground that does not overlap",
         "share", "1 - Jaccard index with the mirror image"),
    )
}  # fmt: skip


def characteristics(volume: VolumeContents) -> dict[str, float]:
    """Compute all of `CHARACTERISTICS`: extent on the native grid, intensity on the coarse one.

    Examples
    --------
    The foreground of a cube has lost its corners, as in the mask of ANTs.

    >>> from voxcast.images.foreground import VoxelBits, foreground
    >>> from voxcast.images.volume import CoarseVolume, VolumeContents
    >>> data = np.zeros((20, 20, 20), np.float32)
    >>> data[5:15, 5:15, 5:15] = 100
    >>> bits = VoxelBits(data.shape)
    >>> bits.set(0, data.ravel() > 0)
    >>> coarse = CoarseVolume(data, (1, 1, 1), (20, 20, 20), (1.0, 1.0, 1.0), "RAS")
    >>> contents = VolumeContents(coarse, foreground(bits, (1, 1, 1)), bits, "")
    >>> characteristics(contents)["foreground_voxels"]
    896.0
    """
    from scipy import ndimage

    coarse, of_mask = volume.coarse, volume.foreground
    grid_voxels, voxel_mm3 = math.prod(coarse.shape), math.prod(coarse.spacing_mm)
    foreground_mm3 = of_mask.voxels * voxel_mm3
    surface_mm2 = sum(
        count * voxel_mm3 / mm for count, mm in zip(of_mask.faces, coarse.spacing_mm, strict=True)
    )
    sphere_mm2 = (36 * math.pi) ** (1 / 3) * foreground_mm3 ** (2 / 3)
    # Intensity from 0, the lowest, to 1, the highest.
    low, high = float(coarse.data.min()), float(coarse.data.max())
    data = (coarse.data - np.float32(low)) * np.float32(1.0 / ((high - low) or 1.0))
    above_mean = data >= data.mean(dtype=np.float64)
    pieces, _ = ndimage.label(above_mean)
    # A mask of few voxels may have none on the coarse grid.
    mask = of_mask.coarse if of_mask.coarse.any() else above_mean
    inside, outside = data[mask], data[~mask]
    median = float(np.median(inside)) or 1.0
    p10, p50, p90, p99 = (float(p) for p in np.percentile(data, (10, 50, 90, 99)))
    inside_p10, inside_p50, inside_p90 = (float(p) for p in np.percentile(inside, (10, 50, 90)))
    counts, _ = np.histogram(inside, bins=64, range=(0.0, max(p99 or 1.0, inside_p90, 1e-6)))
    classes = counts[counts > 0] / max(counts.sum(), 1)
    return {
        "foreground_voxels": float(of_mask.voxels),
        "foreground_ml": foreground_mm3 / 1000,
        "foreground_fraction": of_mask.voxels / grid_voxels,
        "above_mean_fraction": of_mask.above_mean_voxels / grid_voxels,
        "eroded_fraction": of_mask.core_voxels / of_mask.voxels,
        "foreground_extent_fraction": math.prod(of_mask.box_voxels) / grid_voxels,
        "foreground_surface_ratio": float(surface_mm2 / sphere_mm2),
        "component_count": float((np.bincount(pieces.ravel())[1:] >= 10).sum()),
        "zero_fraction": float((data < 1e-3).mean()),
        "p10_over_p99": p10 / (p99 or 1.0),
        "p50_over_p99": p50 / (p99 or 1.0),
        "p90_over_p99": p90 / (p99 or 1.0),
        "foreground_p10_over_p90": inside_p10 / (inside_p90 or 1.0),
        "foreground_variation": float(inside.std()) / (float(inside.mean()) or 1.0),
        "entropy_bits": float(-(classes * np.log2(classes)).sum()),
        "noise_ratio": noise_ratio(data, mask, median),
        "background_noise_ratio": (float(np.median(outside)) if outside.size else 0.0)
        / (inside_p50 or 1.0),
        "gradient_energy": gradient_energy(data, mask, median),
        "bias_strength": bias_strength(data, mask, median),
        "asymmetry": asymmetry(mask, coarse.axcodes),
    }


def noise_ratio(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the noise inside of a mask over the median intensity there.

    The second difference of white noise has six times its variance; anatomy mostly has small
    ones, and the median ignores its edges.
    """
    noise = []
    for axis in range(3):
        if data.shape[axis] < 3:
            continue
        middle = data.take(range(1, data.shape[axis] - 1), axis)
        left, right = _ends(data, axis, 2)
        inside = np.logical_and(*_ends(mask, axis, 2))
        if inside.any():
            bend = np.abs((left - 2 * middle + right)[inside])
            noise.append(1.4826 * float(np.median(bend)) / math.sqrt(6))
    return min(noise, default=0.0) / median


def gradient_energy(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the mean squared step between neighbours inside of a mask, over squared median."""
    energy, pairs = 0.0, 0
    for axis in range(3):
        first, second = _ends(data, axis, 1)
        both = np.logical_and(*_ends(mask, axis, 1))
        step = (second - first)[both]
        energy += float(np.square(step, dtype=np.float64).sum())
        pairs += step.size
    return energy / max(pairs, 1) / median**2


def _ends(array: np.ndarray, axis: int, gap: int) -> tuple[np.ndarray, np.ndarray]:
    first = [slice(None)] * 3
    second = [slice(None)] * 3
    first[axis], second[axis] = slice(None, -gap), slice(gap, None)
    return array[tuple(first)], array[tuple(second)]


def bias_strength(data: np.ndarray, mask: np.ndarray, median: float) -> float:
    """Return the spread of a quadratic fitted to log intensity in a mask."""
    bright = np.argwhere(mask & (data > 0.3 * median))
    if len(bright) < 50:
        return 0.0
    bright = bright[:: max(1, len(bright) // 4000)]  # a quadratic needs no more points
    values = np.log(data[tuple(bright.T)].astype(np.float64))
    x = 2.0 * bright / np.maximum(np.array(data.shape) - 1, 1) - 1.0
    pairs = [x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)]
    basis = np.column_stack([np.ones(len(x)), x, *pairs])
    # Ten normal equations, ridged for flat grids: twenty times as fast as a decomposition.
    square = basis.T @ basis + 1e-6 * len(x) * np.eye(basis.shape[1])
    weights = np.linalg.solve(square, basis.T @ values)
    return float((basis @ weights).std())


def asymmetry(mask: np.ndarray, axcodes: str) -> float:
    """Return the share of a mask, mirrored left to right, that does not overlap, 0 to 1."""
    axis = next(n for n, code in enumerate(axcodes) if code in "LR")
    # About the middle of the mask, because heads are seldom in the middle of the grid.
    filled = np.flatnonzero(mask.any(axis=tuple(n for n in range(3) if n != axis)))
    head = mask.take(range(filled[0], filled[-1] + 1), axis)
    mirrored = np.flip(head, axis)
    return 1.0 - float((head & mirrored).sum()) / float((head | mirrored).sum())


VERSIONS = "versions_json"
CURRENT_VERSIONS = canonical_json({c.name: c.version for c in CHARACTERISTICS.values()})
# Of tables without that column.
FIRST_VERSIONS = canonical_json(dict.fromkeys(CHARACTERISTICS, 1))


def current_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of volumes; a characteristic of another version is unknown."""
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, *CHARACTERISTICS, VERSIONS])))
    texts = [text if isinstance(text, str) else FIRST_VERSIONS for text in rows[VERSIONS]]
    stated = [json.loads(text) for text in texts]
    for name, characteristic in CHARACTERISTICS.items():
        is_valid = np.array([of.get(name) == characteristic.version for of in stated], bool)
        rows[name] = rows[name].astype(float).where(is_valid)
    rows[VERSIONS] = texts
    return rows
