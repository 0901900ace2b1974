import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast_apps.tiles import grid


@pytest.mark.parametrize("per_axis", [2, 3, 4, 5])
def test_every_voxel_lies_in_a_tile_of_the_networks_shape(per_axis):
    places = grid.tiles(per_axis)
    assert len(places) == per_axis**3
    seen = np.zeros(grid.SHAPE, int)
    for place in places:
        assert seen[place].shape == grid.TILE
        seen[place] += 1
    assert seen.min() >= 1
    assert all(size % 4 == 0 for size in grid.TILE)  # the network pools twice


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]))
def test_votes_are_counted_per_voxel(seed, per_axis):
    rng = np.random.default_rng(seed)
    places = grid.tiles(per_axis)
    labels = [rng.integers(0, 4, grid.TILE, dtype=np.uint8) for _ in places]
    fused = grid.fuse(labels, places, 4)
    assert fused.dtype == np.uint8
    for voxel in rng.integers(0, grid.SHAPE, (50, 3)):
        votes = [
            tile[tuple(voxel - [axis.start for axis in place])]
            for tile, place in zip(labels, places, strict=True)
            if all(axis.start <= n < axis.stop for n, axis in zip(voxel, place, strict=True))
        ]
        assert fused[tuple(voxel)] == np.bincount(votes).argmax()  # of equals the lowest
