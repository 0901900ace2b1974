"""The generated cohort: the same for the same seed, heads whole, written once."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ants
import nibabel
import numpy as np
import pytest

from voxcast.errors import ConfigError
from voxcast.files import sha256_of
from voxcast.images.image_set import generated_ids, recipes_in, write_cohort
from voxcast.images.sources import ImageFile, find_images
from voxcast.images.volume import Volume
from voxcast_apps.heads.grids import FixedGrid, Sizes
from voxcast_apps.heads.recipe import (
    DESCRIPTIONS,
    VARIETY_DESCRIPTIONS,
    Recipe,
    draw_recipe,
    draw_varied_recipe,
)
from voxcast_apps.heads.rendering import Rendered, render

SIZES = Sizes((60_000, 80_000, 200_000), (24, 128), (FixedGrid(3, 3, (40, 48, 40), 4.8),))


def _draw(index: int, seed: int = 1, attempt: int = 0) -> Recipe:
    return draw_recipe(seed, index, SIZES, attempt)


@dataclass(frozen=True)
class Cohort:
    folder: Path
    varied: bool
    files: list[ImageFile]

    def written(self, folder: Path, subjects: int) -> list[ImageFile]:
        return write_cohort(
            folder / "a", seed=1, subjects=subjects, sizes=SIZES, root=folder, varied=self.varied
        )

    def draw(self, index: int, seed: int = 1, attempt: int = 0) -> Recipe:
        draw = draw_varied_recipe if self.varied else draw_recipe
        return draw(seed, index, SIZES, attempt)


@pytest.fixture(scope="module", params=[False, True], ids=["alike", "varied"])
def cohort(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    made = Cohort(tmp_path_factory.mktemp("cohort"), request.param, [])
    made.files.extend(made.written(made.folder, 3))
    return made


def test_subject_depends_on_seed_and_index_only(cohort: Cohort, tmp_path: Path) -> None:
    assert cohort.written(tmp_path, 1)[0].sha256 == cohort.files[0].sha256
    assert len({file.sha256 for file in cohort.files}) == 3
    others = [cohort.draw(1), cohort.draw(2), cohort.draw(1, 2), cohort.draw(1, attempt=1)]
    assert len({recipe.sha256 for recipe in others}) == 4
    assert cohort.draw(1).sha256 == others[0].sha256


def test_cohort_is_a_bids_dataset_with_its_recipes(cohort: Cohort) -> None:
    folder, files = cohort.folder / "a", cohort.files
    entries = find_images(folder)
    assert [e.subject for e in entries] == [f.subject for f in files] == ["0001", "0002", "0003"]
    assert files[0].path == "a/sub-0001/anat/sub-0001_T1w.nii.gz"
    assert {file.mtime_ns for file in files} == {0}
    described = json.loads((folder / "participants.json").read_text())
    header = (folder / "participants.tsv").read_text().splitlines()[0].split("\t")
    assert header[0] == "participant_id"
    assert set(described) == set(header) <= set(DESCRIPTIONS)
    assert ("variety" in header) == cohort.varied
    ids, recipes = generated_ids(folder, cohort.folder), recipes_in(folder)
    assert (list(ids), list(ids.values())) == ([file.path for file in files], list(recipes))
    assert all(len(name) == 16 for name in recipes)
    for index, recipe in enumerate(recipes.values(), 1):
        drawn = cohort.draw(index, attempt=recipe["attempt"])
        assert recipe.pop("generator_version") == drawn.generator_version
        assert sha256_of(recipe) == drawn.sha256
        assert set(recipe.get("variety", {})) == set(VARIETY_DESCRIPTIONS if cohort.varied else ())


def test_existing_subjects_are_reused_and_damaged_ones_regenerated(cohort: Cohort) -> None:
    first, second = (cohort.folder / file.path for file in cohort.files[:2])
    mtime_ns = first.stat().st_mtime_ns
    second.write_bytes(b"cut short")
    assert cohort.written(cohort.folder, 3) == cohort.files
    assert first.stat().st_mtime_ns == mtime_ns


def test_every_field_of_view_contains_the_brain() -> None:
    recipes = [_draw(index, seed=8) for index in range(1, 9)]
    assert len({recipe.shell for recipe in recipes}) == 2
    for recipe in recipes:
        rendered = render(recipe)
        assert rendered.problem is None, recipe
        codes = "".join(nibabel.aff2axcodes(rendered.affine))
        assert codes == recipe.orientation
        if recipe.shell:  # air has noise, and there is a scalp: more head than brain
            assert (rendered.array > 0).mean() > 0.5


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({}, "None"), ({"contrast": 9.0}, "contrast"), ({"mask_ratio": 0.5}, "mask_ratio"),
     ({"snr": 1.0}, "snr")],
)  # fmt: skip
def test_check_of_a_volume_reports_the_problem(changes: dict[str, float], problem: str) -> None:
    good = {"mask_ratio": 1.0, "snr": 20.0, "contrast": 0.8}
    assert problem in str(Rendered(np.zeros(1), np.eye(4), **(good | changes)).problem)


def test_subjects_of_a_fixed_grid_share_the_header_and_nothing_else() -> None:
    recipes = [_draw(index) for index in range(3, 91, 3)]
    shared = {(r.shape, r.spacing_mm, r.orientation, r.oblique_deg, r.dtype) for r in recipes}
    assert shared == {((40, 48, 40), (4.8, 4.8, 4.8), "RAS", (0.0, 0.0, 0.0), "int16")}
    for name in ("noise", "gamma", "bias", "scale", "elastic_mm", "margins_mm", "noise_seed"):
        assert len({getattr(recipe, name) for recipe in recipes}) == len(recipes)
    assert {recipe.shell for recipe in recipes} == {True, False}


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"sizes": Sizes((2, 1), (8, 16))}, "voxels"), ({"subjects": 0}, "subjects"),
     ({"label_prefix": "a-"}, "label_prefix")],
)  # fmt: skip
def test_invalid_parameters_are_reported(
    tmp_path: Path, changes: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError, match=rf"images\.{key}"):
        write_cohort(tmp_path, **({"seed": 1, "subjects": 1, "sizes": SIZES} | changes))


VARIED_SIZES = Sizes((60_000, 200_000), (24, 128))
PLAIN: dict[str, Any] = {
    "crispness": 2.0, "ventricle_gain": 1.0, "grey": 0.75, "csf": 0.2, "vessel_mm": 0.0,
    "background": "noise", "background_level": 0.0, "deface_mm": 0.0, "neck_mm": 0.0, "blur": 0.0,
    "coil_gain": 0.0, "zero_borders": (0.0,) * 6, "top_percentile": 99.9, "nape_mm": 0.0,
    "sulcus_mm": 2.0, "cortex_mm": 2.5, "sulcus_depth_mm": 15.0, "gap_mm": 1.5, "bone": 0.05,
}  # fmt: skip


def _whole_head(**variety: Any) -> Recipe:
    """Return a clean head in a field of view with air and neck, with changes to its variety."""
    drawn = draw_varied_recipe(3, 1, VARIED_SIZES)
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


def test_all_that_varies_is_drawn_and_most_volumes_pass_their_check() -> None:
    recipes = [draw_varied_recipe(9, index, VARIED_SIZES) for index in range(1, 201)]
    varieties = [recipe.variety for recipe in recipes if recipe.variety is not None]
    assert len(varieties) == 200
    for name in VARIETY_DESCRIPTIONS:
        assert len({getattr(variety, name) for variety in varieties}) >= 3, name
    for variety in varieties:
        assert variety.csf < variety.grey < 1
    assert sum(recipe.fat_intensity > 1.5 for recipe in recipes) > 40
    assert sum(recipe.fat_intensity < 0.5 for recipe in recipes) > 25
    assert sum(not recipe.shell for recipe in recipes) in range(10, 45)
    assert sum(render(recipe).problem is None for recipe in recipes[:10]) >= 9


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


@pytest.mark.parametrize("index", range(1, 4))
def test_the_foreground_is_the_mask_of_ants(tmp_path: Path, index: int) -> None:
    write_cohort(tmp_path, seed=40 + index, subjects=1, sizes=VARIED_SIZES, varied=True)
    (path,) = tmp_path.rglob("*.nii.gz")
    expected = int((ants.get_mask(ants.image_read(str(path))).numpy() > 0).sum())
    assert Volume.open(path).read().foreground.voxels == pytest.approx(expected, rel=0.005)
