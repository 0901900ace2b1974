"""Texture of a volume on its coarse grid: noise, edges, bias field, side."""

from __future__ import annotations

import math

import numpy as np


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
