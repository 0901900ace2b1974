"""The pretrained network: what is in the package, and a tiny one from generated volumes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import network_trunk
from network_trunk import examples_of
from voxcast.errors import ModelError
from voxcast.files import sha256_file
from voxcast.images.network_volume import POINTS, read_stacked, volume_dtype
from voxcast.models.families.network import FACTS_FILE, WEIGHTS_FILE, read_trunk, write_trunk
from voxcast.models.families.trunk import (
    OTHERS,
    PACKAGED,
    VolumeTrunk,
    accuracy,
    pretrain,
    pretrained,
)
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.recipe import draw_recipe, draw_varied_recipe

ROOT = Path(__file__).parents[4]
SIZES = Sizes((30_000, 40_000, 60_000), (24, 96))
REFERENCE = ROOT / "data/history/reference"


@pytest.fixture(scope="module")
def examples():
    recipes = [draw_recipe(3, n, SIZES) for n in range(1, 9)]
    varied = Sizes((30_000, 60_000), (24, 96))
    recipes += [draw_varied_recipe(3, n, varied) for n in range(1, 5)]
    return examples_of(recipes, 16)


def test_the_trunk_of_the_package_is_what_the_stage_writes() -> None:
    weights, facts = read_trunk(PACKAGED)
    assert facts["weights_sha256"] == sha256_file(PACKAGED / WEIGHTS_FILE)
    assert set(facts["images"]) == set(network_trunk.IMAGES)
    for name, images in facts["images"].items():
        choice = network_trunk._images(name)
        assert images["kind"] == choice.kind
        assert images["seed"] == choice.seed
    assert facts["points"] == POINTS
    assert facts["trained_on"] > 200
    expected = {
        name: np.shape(np.atleast_1d(value)) for name, value in VolumeTrunk().weights().items()
    }
    assert {name: array.shape for name, array in weights.items()} == expected
    size_bytes = sum((PACKAGED / name).stat().st_size for name in (WEIGHTS_FILE, FACTS_FILE))
    assert size_bytes < 2e6


def test_no_measured_image_set_has_the_seeds_of_the_trunk() -> None:
    _, facts = read_trunk(PACKAGED)
    seeds = {images["seed"] for images in facts["images"].values()}
    for path in (ROOT / "conf/images").glob("*.yaml"):
        if path.stem not in facts["images"]:
            assert not seeds & {int(line.split()[1]) for line in path.read_text().splitlines()
                                if line.startswith("seed:")}  # fmt: skip


def test_the_mask_of_recorded_volumes_is_estimated() -> None:
    """Half of them within 5 %; the share above the mean alone misses by a sixth."""
    import pandas as pd

    ids, volumes = read_stacked(REFERENCE / "volumes.npz", "")
    images = pd.read_parquet(REFERENCE / "images.parquet").set_index("volume_id").loc[ids]
    assert len(images) == 128
    assert volumes["shape"].prod(axis=1) == pytest.approx(
        images["foreground_voxels"] / images["foreground_fraction"]
    )
    some = slice(None, None, 4)
    estimates = pretrained().estimates(volumes[some])
    errors = 1e6 * estimates["content.foreground_megavoxels"] / images["foreground_voxels"][some]
    assert np.median(np.abs(errors - 1)) < 0.05


def test_examples_know_the_native_mask(examples) -> None:
    assert len(examples.volumes) >= 10
    assert examples.others.shape[1] == len(OTHERS)
    # Blocks of cells hold the whole mask: their mean is its share.
    assert examples.masks.mean(axis=(1, 2, 3)) / 255 == pytest.approx(examples.shares, rel=0.02)


def test_a_tiny_trunk_is_trained_written_and_read(examples, tmp_path: Path) -> None:
    trunk = pretrain(examples, epochs=100, seed=0)
    torch.manual_seed(0)
    before = accuracy(VolumeTrunk().eval(), examples)["spread"]
    assert accuracy(trunk, examples)["spread"] < 0.5 * before
    write_trunk(tmp_path, trunk.weights(), {"seed": 0})
    weights, facts = read_trunk(tmp_path)
    again = VolumeTrunk.of_weights(weights)
    assert facts["seed"] == 0
    for name, values in trunk.estimates(examples.volumes).items():
        # Weights are stored in half precision.
        assert again.estimates(examples.volumes)[name] == pytest.approx(values, rel=0.05, abs=0.05)
    del weights["mask.bias"]
    with pytest.raises(ModelError, match="weights of another network"):
        VolumeTrunk.of_weights(weights)
    (tmp_path / FACTS_FILE).write_text(json.dumps({"seed": 0}))
    with pytest.raises(ModelError, match="damaged"):
        read_trunk(tmp_path)


def test_an_unknown_volume_has_no_estimate(examples) -> None:
    volumes = np.concatenate([examples.volumes[:2], np.zeros(1, volume_dtype(16))])
    for values in pretrained().estimates(volumes).values():
        assert np.isfinite(values).tolist() == [True, True, False]
