"""Characteristics of a volume that its header does not hold, from its coarse grid.

The most informative is the extent of the foreground: the mask of ANTs' `get_mask` decides how many
voxels bias correction and segmentation work on. None depends on the intensity scale.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage

if TYPE_CHECKING:
    from voxcast.images.volumes import CoarseVolume

CHARACTERISTICS = {
    "foreground_voxels": "voxels of the native grid in the foreground mask",
    "foreground_ml": "volume of the foreground mask in millilitres",
    "foreground_fraction": "share of the grid in the foreground mask, 0 to 1",
    "above_mean_fraction": "share of the grid above the mean intensity, before cleaning, 0 to 1",
    "core_fraction": "share of the mask that stays after opening with a wider ball, 0 to 1",
    "foreground_extent_fraction": "share of the grid in the mask's bounding box, 0 to 1",
    "foreground_surface_ratio": "mask surface over that of a sphere of the same volume",
    "component_count": "pieces above the mean that hold at least 10 voxels of the coarse grid",
    "zero_fraction": "share of the grid at the lowest intensity, 0 to 1",
    "p10_over_p99": "10th over 99th percentile of intensity above the lowest",
    "p50_over_p99": "50th over 99th percentile of intensity above the lowest",
    "p90_over_p99": "90th over 99th percentile of intensity above the lowest",
    "foreground_p10_over_p90": "10th over 90th percentile of intensity in the foreground",
    "foreground_variation": "standard deviation over mean of intensity in the foreground",
    "entropy_bits": "entropy of 64 intensity classes in the foreground, in bits",
    "noise_ratio": "noise in the foreground over its median intensity",
    "background_noise_ratio": "median background over median foreground intensity",
    "gradient_energy": "mean squared intensity step between neighbours over squared median",
    "bias_strength": "spread of a quadratic fitted to log intensity in the foreground",
    "asymmetry": "share of left-right mirrored foreground that does not overlap, 0 to 1",
}

MASK_RADIUS_VOXELS = 2.0  # as in ants.get_mask
# In native voxels, too; chosen on generated and real heads to match ants.get_mask.
OUTLINE_RADIUS_VOXELS = 2.55
CORE_RADIUS_VOXELS = 3.6


def characteristics(coarse: CoarseVolume) -> dict[str, float]:
    """Compute all of `CHARACTERISTICS`.

    Examples
    --------
    >>> from voxcast.images.volumes import CoarseVolume
    >>> data = np.zeros((20, 20, 20), np.float32)
    >>> data[5:15, 5:15, 5:15] = 100
    >>> coarse = CoarseVolume(data, (1, 1, 1), (20, 20, 20), (1.0, 1.0, 1.0), "RAS")
    >>> 700 < characteristics(coarse)["foreground_voxels"] <= 1000
    True
    """
    low, high = float(coarse.data.min()), float(coarse.data.max())
    data = (coarse.data - np.float32(low)) * np.float32(1.0 / (high - low))
    above = data >= data.mean(dtype=np.float64)
    mask, core_fraction = _foreground(above, coarse.stride)
    _, sizes = _pieces(above)
    values = {**_extent(mask, coarse), **_intensity(data, mask), **_texture(data, mask)}
    values["core_fraction"] = core_fraction
    values["above_mean_fraction"] = float(above.mean())
    values["component_count"] = float((sizes >= 10).sum())
    values["asymmetry"] = _asymmetry(mask, coarse.axcodes)
    return {name: values[name] for name in CHARACTERISTICS}


def _foreground(above: np.ndarray, stride: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Return a mask like that of `ants.get_mask`, and the share of it that is its core.

    The steps of antspyx 0.6.3 are: threshold at the mean, erosion by two voxels, largest piece,
    dilation, holes filled. Most depends on whether erosion separates brain and scalp. On a coarse
    grid thin bridges survive it, so a wider ball chooses the piece and a narrower one its outline.
    """
    native = max(stride) == 1
    ball = _ball(stride, MASK_RADIUS_VOXELS if native else OUTLINE_RADIUS_VOXELS)
    wide = ball if native else _ball(stride, CORE_RADIUS_VOXELS)
    eroded = ndimage.binary_erosion(above, ball)
    core = ndimage.binary_erosion(above, wide)
    if not core.any():
        core, wide = eroded, ball
    if not core.any():
        return _without_holes(above), 0.0  # nothing as thick as the ball: ANTs erodes less, too
    labels, sizes = _pieces(core)
    piece = ndimage.binary_dilation(labels == int(sizes.argmax()) + 1, wide)
    mask = _without_holes(ndimage.binary_dilation(eroded & piece, ball))
    return mask, float(piece.sum() / mask.sum())


def _ball(stride: tuple[int, ...], radius_voxels: float) -> np.ndarray:
    """Return a ball of a radius in native voxels on the coarse grid.

    A neighbour k voxels away represents all those between: on average (k - 1) / 2 less.
    """
    reach = int(radius_voxels) + 1
    axes = np.ogrid[(slice(-reach, reach + 1),) * 3]
    steps = [
        np.maximum(np.abs(axis) * k - (k - 1) / 2, 0) * (axis != 0)
        for axis, k in zip(axes, stride, strict=True)
    ]
    inside = np.asarray(sum(step**2 for step in steps) <= radius_voxels**2)
    box = ndimage.find_objects(inside.astype(np.int8))[0]
    return np.asarray(inside[box])


def _pieces(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, count = ndimage.label(mask)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    return labels, sizes


def _without_holes(mask: np.ndarray) -> np.ndarray:
    # As scipy's binary_fill_holes, but by labels: ten times as fast on a head.
    labels, count = ndimage.label(~mask)
    outside = np.zeros(count + 1, bool)
    for axis in range(3):
        for end in (0, -1):
            outside[np.unique(labels.take(end, axis))] = True
    outside[0] = False
    filled: np.ndarray = ~outside[labels]
    return filled


def _extent(mask: np.ndarray, coarse: CoarseVolume) -> dict[str, float]:
    fraction = float(mask.mean())
    voxels = fraction * math.prod(coarse.shape)
    box = ndimage.find_objects(mask.astype(np.int8))[0]
    box_voxels = math.prod(s.stop - s.start for s in box)
    steps = [mm * k for mm, k in zip(coarse.spacing_mm, coarse.stride, strict=True)]
    faces = [math.prod(steps) / step for step in steps]
    surface = sum(
        face * float(np.count_nonzero(np.diff(mask, axis=axis))) for axis, face in enumerate(faces)
    )
    volume_mm3 = float(mask.sum()) * math.prod(steps)
    sphere = (36 * math.pi) ** (1 / 3) * volume_mm3 ** (2 / 3)
    return {
        "foreground_voxels": voxels,
        "foreground_ml": voxels * math.prod(coarse.spacing_mm) / 1000,
        "foreground_fraction": fraction,
        "foreground_extent_fraction": box_voxels / mask.size,
        "foreground_surface_ratio": surface / sphere,
    }


def _intensity(data: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    p10, p50, p90, p99 = (float(p) for p in np.percentile(data, (10, 50, 90, 99)))
    top = p99 or 1.0
    inside = data[mask]
    f10, f50, f90 = (float(p) for p in np.percentile(inside, (10, 50, 90)))
    outside = float(np.median(data[~mask])) if not mask.all() else 0.0
    counts, _ = np.histogram(inside, bins=64, range=(0.0, max(top, f90, 1e-6)))
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return {
        "zero_fraction": float((data < 1e-3).mean()),
        "p10_over_p99": p10 / top,
        "p50_over_p99": p50 / top,
        "p90_over_p99": p90 / top,
        "foreground_p10_over_p90": f10 / (f90 or 1.0),
        "foreground_variation": float(inside.std()) / (float(inside.mean()) or 1.0),
        "entropy_bits": float(-(shares * np.log2(shares)).sum()),
        "background_noise_ratio": outside / (f50 or 1.0),
    }


def _texture(data: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    median = float(np.median(data[mask])) or 1.0
    energy, pairs = 0.0, 0
    noise = []
    for axis in range(3):
        first, second = _ends(data, axis, 1)
        both = np.logical_and(*_ends(mask, axis, 1))
        step = (second - first)[both]
        energy += float(np.square(step, dtype=np.float64).sum())
        pairs += step.size
        if data.shape[axis] >= 3:
            middle = data.take(range(1, data.shape[axis] - 1), axis)
            left, right = _ends(data, axis, 2)
            inside = np.logical_and(*_ends(mask, axis, 2))
            if inside.any():
                # The second difference of white noise has six times its variance; anatomy mostly
                # has small ones, and the median ignores its edges.
                bend = np.abs((left - 2 * middle + right)[inside])
                noise.append(1.4826 * float(np.median(bend)) / math.sqrt(6))
    return {
        "noise_ratio": min(noise, default=0.0) / median,
        "gradient_energy": energy / max(pairs, 1) / median**2,
        "bias_strength": _bias_strength(data, mask, median),
    }


def _ends(array: np.ndarray, axis: int, gap: int) -> tuple[np.ndarray, np.ndarray]:
    first = [slice(None)] * 3
    second = [slice(None)] * 3
    first[axis], second[axis] = slice(None, -gap), slice(gap, None)
    return array[tuple(first)], array[tuple(second)]


def _bias_strength(data: np.ndarray, mask: np.ndarray, median: float) -> float:
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


def _asymmetry(mask: np.ndarray, axcodes: str) -> float:
    axis = next(n for n, code in enumerate(axcodes) if code in "LR")
    # About the middle of the mask, because heads are seldom in the middle of the grid.
    filled = np.flatnonzero(mask.any(axis=tuple(n for n in range(3) if n != axis)))
    head = mask.take(range(filled[0], filled[-1] + 1), axis)
    mirrored = np.flip(head, axis)
    return 1.0 - float((head & mirrored).sum()) / float((head | mirrored).sum())
