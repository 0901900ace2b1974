"""Varied heads: each factor has its effect, and their foreground is still the mask of ANTs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ants
import numpy as np
import pytest

from voxcast.files import sha256_of
from voxcast.images.image_set import recipes_in, write_cohort
from voxcast.images.volume import Volume
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.recipe import VARIETY_DESCRIPTIONS, Recipe, draw_varied_recipe
from voxcast_apps.heads.rendering import render

SIZES = Sizes((60_000, 200_000), (24, 128))
PLAIN: dict[str, Any] = {
    "crispness": 2.0, "ventricle_gain": 1.0, "grey": 0.75, "csf": 0.2, "vessel_mm": 0.0,
    "background": "noise", "background_level": 0.0, "deface_mm": 0.0, "neck_mm": 0.0, "blur": 0.0,
    "coil_gain": 0.0, "zero_borders": (0.0,) * 6, "top_percentile": 99.9, "nape_mm": 0.0,
    "sulcus_mm": 2.0, "cortex_mm": 2.5, "sulcus_depth_mm": 15.0, "gap_mm": 1.5, "bone": 0.05,
}  # fmt: skip


def _whole_head(**variety: Any) -> Recipe:
    """Return a clean head in a field of view with air and neck, with changes to its variety."""
    drawn = draw_varied_recipe(3, 1, SIZES)
    assert drawn.shell
    assert drawn.variety is not None
    return replace(
        drawn,
        shape=(64, 80, 80), spacing_mm=(3.0, 3.0, 3.0), corner_mm=(-95.0, -140.0, -125.0),
        scale=(0.93, 0.93, 0.93), elastic_mm=3.0, noise_seed=5, orientation="RAS",
        oblique_deg=(0.0, 0.0, 0.0), rotation_deg=(0.0, 0.0, 0.0),
        dtype="float32", noise=0.01, bias=(0.0,) * 20, motion_deg=(), motion_mm=(),
        motion_times=(), ghosts=0, gamma=1.0, skull_mm=6.0, fat_mm=4.0,
        fat_intensity=1.0, full_range=1000.0,
        variety=replace(drawn.variety, **PLAIN | variety),
    )  # fmt: skip


def _voxels(recipe: Recipe) -> np.ndarray:
    rendered = render(recipe)
    assert rendered.problem is None
    # The scale of the file hangs on its brightest voxels: white matter deep inside is 1.
    array = rendered.array.astype(np.float32)
    return array / np.percentile(array[24:40, 36:52, 40:52], 75)


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return _voxels(_whole_head())


def test_subjects_are_drawn_alone_and_their_recipes_are_in_the_table(tmp_path: Path) -> None:
    files = write_cohort(tmp_path, seed=4, subjects=3, sizes=SIZES, varied=True, label_prefix="v")
    again = write_cohort(tmp_path / "b", seed=4, subjects=1, sizes=SIZES, varied=True)
    assert again[0].sha256 == files[0].sha256
    assert len({file.sha256 for file in files}) == 3
    for index, recipe in enumerate(recipes_in(tmp_path).values(), 1):
        assert recipe.pop("generator_version") == "3"
        assert set(recipe["variety"]) == set(VARIETY_DESCRIPTIONS)
        assert sha256_of(recipe) == draw_varied_recipe(4, index, SIZES, recipe["attempt"]).sha256
    described = json.loads((tmp_path / "participants.json").read_text())
    assert "variety" in described


def test_all_that_varies_is_drawn_and_most_volumes_pass_their_check() -> None:
    recipes = [draw_varied_recipe(9, index, SIZES) for index in range(1, 201)]
    varieties = [recipe.variety for recipe in recipes if recipe.variety is not None]
    assert len(varieties) == 200
    for name in VARIETY_DESCRIPTIONS:
        assert len({getattr(variety, name) for variety in varieties}) >= 3, name
    for variety in varieties:
        assert variety.csf < variety.grey < 1
    assert sum(recipe.fat_intensity > 1.5 for recipe in recipes) > 40
    assert sum(recipe.fat_intensity < 0.5 for recipe in recipes) > 25
    assert sum(not recipe.shell for recipe in recipes) in range(10, 45)
    assert sum(render(recipe).problem is None for recipe in recipes[:20]) >= 18


def test_sulci_make_the_surface_rough(plain: np.ndarray) -> None:
    near_surface = np.s_[20:44, 30:60, 54:60]
    smooth = _voxels(_whole_head(cortex_mm=0.0))
    wide = _voxels(_whole_head(sulcus_mm=4.0))
    assert _roughness(plain[near_surface]) > 1.2 * _roughness(smooth[near_surface])
    assert wide[near_surface].mean() < plain[near_surface].mean()


def _roughness(voxels: np.ndarray) -> float:
    return float(sum(np.square(np.diff(voxels, axis=axis)).mean() for axis in range(3)))


@pytest.mark.parametrize(
    ("variety", "part"),
    [
        ({"deface_mm": 30.0, "deface_deg": 20.0}, np.s_[:, 70:, :20]),
        ({"neck_mm": -70.0}, np.s_[:, :, :12]),
        ({"background": "zero"}, np.s_[:2]),
        ({"zero_borders": (0.1, 0.0, 0.0, 0.0, 0.0, 0.0)}, np.s_[:6]),
    ],
)
def test_what_is_removed_is_zero(
    plain: np.ndarray, variety: dict[str, Any], part: tuple[slice, ...]
) -> None:
    removed = _voxels(_whole_head(**variety))
    assert (removed[part] == 0).all()
    assert (plain[part] > 0).mean() > 0.99
    assert (removed[24:40, 36:52, 40:52] > 0).all()


def test_a_head_on_a_coarse_grid_is_the_same_head() -> None:
    recipe = _whole_head()
    coarse = recipe.on_grid((32, 40, 40))
    fine, small = render(recipe), render(coarse)
    assert small.array.shape == (32, 40, 40)
    assert small.mask_ratio == pytest.approx(fine.mask_ratio, rel=0.02)
    box = fine.array.reshape(32, 2, 40, 2, 40, 2).mean((1, 3, 5))
    assert np.corrcoef(box.ravel(), small.array.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("index", range(1, 9))
def test_the_foreground_is_the_mask_of_ants(tmp_path: Path, index: int) -> None:
    write_cohort(tmp_path, seed=40 + index, subjects=1, sizes=SIZES, varied=True)
    (path,) = tmp_path.rglob("*.nii.gz")
    expected = int((ants.get_mask(ants.image_read(str(path))).numpy() > 0).sum())
    assert Volume.open(path).read().foreground.voxels == pytest.approx(expected, rel=0.005)


def _of_ants(array: np.ndarray) -> np.ndarray:
    mask: np.ndarray = ants.get_mask(ants.from_numpy(array.astype(np.float32))).numpy() > 0
    return mask
