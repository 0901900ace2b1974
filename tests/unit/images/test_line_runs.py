"""Runs of voxels give what labels of every voxel give."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from voxcast.images.foreground import LineRuns, line_runs


def _runs(mask: np.ndarray) -> LineRuns:
    """Return the runs of a mask of shape (k, j, i)."""
    k, j, i = mask.shape
    return LineRuns((i, j, k), *line_runs(mask))


def _masks() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((1, 1, 1), (7, 1, 5), (1, 9, 4), (6, 8, 1), (9, 10, 11))
    masks = [rng.random(shape) < share for shape in shapes for share in (0.2, 0.5, 0.8)]
    return [*masks, np.zeros((3, 4, 5), bool), np.ones((3, 4, 5), bool)]


@pytest.mark.parametrize("mask", _masks())
def test_runs_describe_the_mask(mask: np.ndarray) -> None:
    runs, planes = _runs(mask), len(mask)
    assert runs.voxels == mask.sum()
    np.testing.assert_array_equal(runs.planes(0, planes), mask)
    np.testing.assert_array_equal(runs.planes(planes // 2, planes), mask[planes // 2 :])
    np.testing.assert_array_equal(runs.complement().planes(0, planes), ~mask)
    parts = [line_runs(mask[n : n + 1], n) for n in range(planes)]
    for edges, whole in zip(zip(*parts, strict=True), (runs.starts, runs.ends), strict=True):
        np.testing.assert_array_equal(np.concatenate(edges), whole)


@pytest.mark.parametrize("mask", _masks())
def test_pieces_are_those_of_labelling(mask: np.ndarray) -> None:
    labels, count = ndimage.label(mask)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    largest = _runs(mask).largest_piece()
    assert largest.voxels == max(sizes, default=0)
    if count and (sizes == sizes.max()).sum() == 1:
        np.testing.assert_array_equal(
            largest.planes(0, len(mask)), labels == 1 + int(sizes.argmax())
        )


@pytest.mark.parametrize("mask", _masks())
@pytest.mark.parametrize("min_voxels", [0, 2, 5, 30])
def test_all_of_the_largest_pieces_are_returned(mask: np.ndarray, min_voxels: int) -> None:
    labels, count = ndimage.label(mask)
    sizes = np.bincount(labels.ravel(), minlength=count + 1)
    sizes[0] = 0
    kept = (sizes == sizes.max()) & (sizes >= min_voxels) & (sizes > 0)
    largest = _runs(mask).largest_pieces(min_voxels)
    np.testing.assert_array_equal(largest.planes(0, len(mask)), kept[labels])


def test_bounds() -> None:
    mask = np.zeros((9, 8, 7), bool)
    mask[2:4, 1:6, 3:5] = True
    assert _runs(mask).bounds() == (2, 5, 2)
    mask[8, 0, 0] = True
    assert _runs(mask).bounds() == (5, 6, 7)
