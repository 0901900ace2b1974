"""The generated cohort: the same for the same seed, heads whole, written once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import nibabel
import numpy as np
import pytest

from voxcast.errors import ConfigError
from voxcast.files import sha256_of
from voxcast.images.image_set import generated_ids, recipes_in, write_cohort
from voxcast.images.sources import ImageFile, find_images
from voxcast_apps.heads.grids import FixedGrid, Sizes
from voxcast_apps.heads.recipe import DESCRIPTIONS, GENERATOR_VERSION, Recipe, draw_recipe
from voxcast_apps.heads.rendering import Rendered, render

if TYPE_CHECKING:
    from pathlib import Path

SIZES = Sizes((60_000, 80_000, 200_000), (24, 128), (FixedGrid(3, 3, (40, 48, 40), 4.8),))


def _draw(index: int, seed: int = 1, attempt: int = 0) -> Recipe:
    return draw_recipe(seed, index, SIZES, attempt)


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ImageFile]]:
    folder = tmp_path_factory.mktemp("cohort")
    return folder, write_cohort(folder / "a", seed=1, subjects=3, sizes=SIZES, root=folder)


def test_subject_depends_on_seed_and_index_only(
    cohort: tuple[Path, list[ImageFile]], tmp_path: Path
) -> None:
    _, files = cohort
    again = write_cohort(tmp_path / "b", seed=1, subjects=1, sizes=SIZES, root=tmp_path)
    assert again[0].sha256 == files[0].sha256
    assert len({file.sha256 for file in files}) == 3
    assert _draw(1).sha256 == _draw(1).sha256
    assert len({_draw(1).sha256, _draw(2).sha256, _draw(1, 2).sha256}) == 3
    assert _draw(1, attempt=1).sha256 != _draw(1).sha256


def test_cohort_is_a_bids_dataset(cohort: tuple[Path, list[ImageFile]]) -> None:
    folder, files = cohort
    entries = find_images(folder / "a")
    assert [e.subject for e in entries] == [f.subject for f in files] == ["0001", "0002", "0003"]
    assert files[0].path == "a/sub-0001/anat/sub-0001_T1w.nii.gz"
    assert {file.mtime_ns for file in files} == {0}
    described = json.loads((folder / "a/participants.json").read_text())
    header = (folder / "a/participants.tsv").read_text().splitlines()[0].split("\t")
    assert header[0] == "participant_id"
    assert set(described) == set(header)
    assert set(asdict(_draw(1))) <= set(DESCRIPTIONS)
    ids = generated_ids(folder / "a", folder)
    assert list(ids) == [file.path for file in files]
    assert all(len(name) == 16 for name in ids.values())


def test_recipes_are_restored_from_the_table(cohort: tuple[Path, list[ImageFile]]) -> None:
    folder, _ = cohort
    recipes = recipes_in(folder / "a")
    assert list(recipes) == list(generated_ids(folder / "a", folder).values())
    for index, recipe in enumerate(recipes.values(), 1):
        assert recipe.pop("generator_version") == GENERATOR_VERSION
        assert sha256_of(recipe) == _draw(index).sha256


def test_existing_subjects_are_reused_and_damaged_ones_regenerated(
    cohort: tuple[Path, list[ImageFile]],
) -> None:
    folder, files = cohort
    first, second = (folder / file.path for file in files[:2])
    mtime_ns = first.stat().st_mtime_ns
    second.write_bytes(b"cut short")
    assert write_cohort(folder / "a", seed=1, subjects=3, sizes=SIZES, root=folder) == files
    assert first.stat().st_mtime_ns == mtime_ns


def test_every_field_of_view_contains_the_brain() -> None:
    recipes = [_draw(index, seed=8) for index in range(1, 13)]
    assert len({recipe.shell for recipe in recipes}) == 2
    for recipe in recipes:
        rendered = render(recipe)
        assert rendered.problem is None, recipe
        codes = "".join(nibabel.aff2axcodes(rendered.affine))
        assert codes == recipe.orientation
        if recipe.shell:  # air has noise, and there is a scalp: more head than brain
            assert (rendered.array > 0).mean() > 0.5


def test_check_of_a_volume_reports_the_problem() -> None:
    good = {"array": np.zeros(1), "affine": np.eye(4), "mask_ratio": 1.0, "snr": 20.0}
    assert Rendered(**good, contrast=0.8).problem is None
    assert "contrast" in str(Rendered(**good, contrast=9.0).problem)
    assert "mask_ratio" in str(Rendered(**(good | {"mask_ratio": 0.5}), contrast=0.8).problem)
    assert "snr" in str(Rendered(**(good | {"snr": 1.0}), contrast=0.8).problem)


def test_subjects_of_a_fixed_grid_share_the_header_and_nothing_else() -> None:
    recipes = [_draw(index) for index in range(3, 91, 3)]
    shared = {(r.shape, r.spacing_mm, r.orientation, r.oblique_deg, r.dtype) for r in recipes}
    assert shared == {((40, 48, 40), (4.8, 4.8, 4.8), "RAS", (0.0, 0.0, 0.0), "int16")}
    for name in ("noise", "gamma", "bias", "scale", "elastic_mm", "margins_mm", "noise_seed"):
        assert len({getattr(recipe, name) for recipe in recipes}) == len(recipes)
    assert {recipe.shell for recipe in recipes} == {True, False}


def test_invalid_parameters_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"images\.voxels"):
        write_cohort(tmp_path, seed=1, subjects=1, sizes=Sizes((2, 1), (8, 16)))
    with pytest.raises(ConfigError, match=r"images\.subjects"):
        write_cohort(tmp_path, seed=1, subjects=0, sizes=SIZES)
    with pytest.raises(ConfigError, match=r"images\.label_prefix"):
        write_cohort(tmp_path, seed=1, subjects=1, sizes=SIZES, label_prefix="a-")
