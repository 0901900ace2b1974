"""The network of tiles: its weights, its training, its grid."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.apps.app import package_path
from voxcast.errors import ModelError
from voxcast_apps.tiles import grid, network, training

ROOT = Path(__file__).parents[3]


def test_weights_round_trip_in_half_precision(tmp_path):
    torch.manual_seed(3)
    model = network.TileNet()
    network.save_weights(model, tmp_path / "weights.pt")
    again = network.load_weights(tmp_path / "weights.pt").state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again[name], value, rtol=1e-3, atol=1e-6)


class Trap:
    """What a hostile file would hold: a call that is made when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("sprung"),))


def test_a_file_that_is_not_a_state_dict_is_refused_without_running_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"head.bias": Trap()}, "trap.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    torch.save(torch.nn.Linear(2, 2).state_dict(), "other.pt")
    for name in ("trap.pt", "plain.pt", "other.pt"):
        with pytest.raises(ModelError, match=f"{name}: is not this network's weights"):
            network.load_weights(name)
    assert not Path("sprung").exists()
    with pytest.raises(ModelError, match=r"missing\.pt: .*No such file"):
        network.load_weights("missing.pt")


def test_the_weights_of_the_package_are_part_of_the_version():
    conf = yaml.safe_load((ROOT / "conf/app/tile_segment.yaml").read_text())
    (named,) = conf["tile_segment"]["files"]
    assert package_path(named).samefile(network.WEIGHTS)
    assert network.WEIGHTS.stat().st_size < 2e6


def test_training_fits_its_data_and_is_reproducible():
    place = np.indices(grid.SHAPE)
    middle = np.reshape(grid.SHAPE, (3, 1, 1, 1)) / 2
    labels = (((place - middle) ** 2).sum(axis=0) < 30**2).astype(np.uint8) * 3
    noise = np.random.default_rng(0).normal(0, 0.3, grid.SHAPE)
    volume = (labels * 0.5 - 1 + noise).astype(np.float32)

    def trained(steps):
        return training.train([volume], [labels], steps=steps, seed=5, crop=(16, 16, 16))

    for a, b in zip(trained(2).parameters(), trained(2).parameters(), strict=True):
        torch.testing.assert_close(a, b)
    (place,) = [place for place in grid.tiles(2) if place[0].start == place[1].start == 0][:1]
    (predicted,) = network.label_tiles(volume, trained(30), torch.device("cpu"), [place])
    assert training.dice(predicted, labels[place])[2] > 0.8


def test_dice_is_one_for_equal_labels_and_unknown_for_absent_ones():
    labels = np.array([0, 1, 1, 2])
    assert training.dice(labels, labels)[:2] == [1.0, 1.0]
    assert np.isnan(training.dice(labels, labels)[2])
    assert training.dice(np.array([1, 1, 0, 2]), labels)[0] == 0.5


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


@settings(max_examples=5)
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
