"""Grids: sizes within their bounds, spread as asked for, apart from the content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from voxcast.errors import ConfigError
from voxcast_apps.heads import template
from voxcast_apps.heads.grids import FixedGrid, Sizes, even_share, free_grid
from voxcast_apps.heads.recipe import Recipe, draw_recipe
from voxcast_apps.heads.rendering import render, tissue_labels

CONF = Path(__file__).parents[3] / "conf/images"
CONTENT = {
    "noise": lambda r: np.log(r.noise),
    "contrast": lambda r: r.gamma,
    "bias field": lambda r: np.std(r.bias),
    "anatomy": lambda r: r.elastic_mm,
    "head size": lambda r: np.prod(r.scale),
    "field of view": lambda r: np.sum(r.margins_mm),
    "shell": lambda r: float(r.shell),
}


def _recipes(name: str) -> list[Recipe]:
    raw = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    fixed = tuple(FixedGrid(**{**g, "shape": tuple(g["shape"])}) for g in raw["fixed_grids"])
    sizes = Sizes(tuple(raw["voxels"]), tuple(raw["axis_voxels"]), fixed).checked()
    return [draw_recipe(raw["seed"], index, sizes) for index in range(1, raw["subjects"] + 1)]


@pytest.mark.parametrize(("name", "count"), [("cohort_reference", 120), ("cohort_second", 60)])
def test_recorded_sets_have_all_sizes_and_size_is_uncorrelated_with_content(
    name: str, count: int
) -> None:
    recipes = _recipes(name)
    shapes = [recipe.shape for recipe in recipes]
    voxels = np.array([np.prod(shape) for shape in shapes])
    assert len(recipes) >= count
    assert (min(voxels), max(voxels)) == (57 * 67 * 56, 256**3)
    assert (np.min(shapes), np.max(shapes)) == (56, 256)
    assert shapes.count((96, 112, 96)) >= count / 5
    for characteristic, value in CONTENT.items():
        r = np.corrcoef(np.log(voxels), [value(recipe) for recipe in recipes])[0, 1]
        assert abs(r) < 0.15, characteristic


def test_recorded_sets_share_no_seed_and_no_subject() -> None:
    raw = [yaml.safe_load((CONF / f"{name}.yaml").read_text()) for name in
           ("cohort", "cohort_reference", "cohort_second", "cohort_reference2")]  # fmt: skip
    assert len({r["seed"] for r in raw}) == len({r["label_prefix"] for r in raw}) == 4
    different = ("seed", "subjects", "label_prefix")
    first, second = ({k: v for k, v in r.items() if k not in different} for r in raw[1:3])
    assert first == second


@pytest.mark.parametrize("first", [1, 50, 800])
def test_sizes_of_consecutive_subjects_are_evenly_spread(first: int) -> None:
    shares = [even_share(5, index) for index in range(first, first + 16)]
    counts = np.histogram(shares, 4, (0, 1))[0]
    assert 3 <= counts.min() <= counts.max() <= 5


@pytest.mark.parametrize("aspect", [(1, 1, 1), (1, 2, 1)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_free_grid_stays_within_its_bounds(aspect: tuple[float, ...], share: float) -> None:
    sizes = Sizes((200_000, 800_000, 9_000_000), (56, 256))
    extent_mm = (190.0, 240.0, 210.0)
    shape, spacing_mm = free_grid(extent_mm, aspect, sizes, share)
    assert 0.97 * sizes.voxels[0] <= np.prod(shape) <= 1.03 * sizes.voxels[2]
    assert 56 <= min(shape) <= max(shape) <= 256
    assert np.multiply(shape, spacing_mm) == pytest.approx(extent_mm, rel=0.02)
    assert max(spacing_mm) / min(spacing_mm) == pytest.approx(max(aspect), rel=1e-3)


def test_a_field_of_view_without_a_grid_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"images\.axis_voxels: no grid"):
        free_grid((100, 100, 400), (1, 1, 1), Sizes((200_000, 300_000, 9_000_000), (56, 128)), 0.5)


@pytest.mark.parametrize(
    ("sizes", "key"),
    [
        (Sizes((3, 2, 1), (8, 16)), "voxels"),
        (Sizes((1000, 2000, 3000), (16,)), "axis_voxels"),
        (Sizes((9000, 9000, 9000), (4, 16)), "axis_voxels"),
        (Sizes((1000, 2000, 3000), (8, 16), (FixedGrid(1, 0, (8, 8, 8), 2.0),)), "fixed_grids"),
    ],
)
def test_invalid_sizes_are_reported(sizes: Sizes, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"images\.{key}"):
        sizes.checked()


SIZES = Sizes(voxels=(200_000, 250_000, 300_000), axis_voxels=(32, 160))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_labels_lie_where_the_images_tissues_are(index):
    recipe = draw_recipe(21, index, SIZES)
    labels, image = tissue_labels(recipe), render(recipe)
    assert labels.shape == image.array.shape
    assert labels.dtype == np.uint8
    csf, grey, white = (float(np.median(image.array[labels == n])) for n in (1, 2, 3))
    assert csf < grey < white


def test_the_tissues_fill_the_brain_of_the_image():
    recipe = draw_recipe(21, 4, SIZES)
    labels = tissue_labels(recipe)
    voxel_mm3 = float(np.prod(recipe.spacing_mm))
    expected_mm3 = template.brain().volume_mm3 * float(np.prod(recipe.scale))
    assert (labels > 0).sum() * voxel_mm3 == pytest.approx(expected_mm3, rel=0.12)


def test_no_image_set_has_the_seeds_that_the_network_was_trained_with(request):
    root = request.config.rootpath
    script = (root / "pipelines" / "tile_weights.py").read_text()
    used = {70_001, 70_002}
    assert all(f"({seed:_}, " in script for seed in used)
    for path in (root / "conf" / "images").glob("*.yaml"):
        assert yaml.safe_load(path.read_text()).get("seed") not in used
