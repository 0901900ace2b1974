"""The generated cohort: the same for the same seed, heads whole, written once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import nibabel
import numpy as np
import pytest

from voxcast.errors import ConfigError
from voxcast.images.bids import find_images
from voxcast.images.cohort import generated_ids, write_cohort
from voxcast.images.headers import read_header
from voxcast.images.recipe import DESCRIPTIONS, Recipe, draw_recipe
from voxcast.images.rendering import Rendered, render
from voxcast.images.sources import ImageFile

if TYPE_CHECKING:
    from pathlib import Path

SPACINGS: dict[str, Any] = {
    "fine_every": 3,
    "fine_spacing_mm": (2.0, 2.2),
    "coarse_spacing_mm": (4.0, 5.0),
}


def _draw(index: int, seed: int = 1, **kwargs: Any) -> Recipe:
    return draw_recipe(seed, index, **(SPACINGS | kwargs))


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ImageFile]]:
    folder = tmp_path_factory.mktemp("cohort")
    return folder, write_cohort(folder / "a", seed=1, subjects=3, root=folder, **SPACINGS)


def test_subject_depends_on_seed_and_index_only(
    cohort: tuple[Path, list[ImageFile]], tmp_path: Path
) -> None:
    _, files = cohort
    again = write_cohort(tmp_path / "b", seed=1, subjects=1, root=tmp_path, **SPACINGS)
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


def test_volumes_follow_their_recipes(cohort: tuple[Path, list[ImageFile]]) -> None:
    folder, files = cohort
    for index, file in enumerate(files, 1):
        recipe = _draw(index)
        header = read_header(folder / file.path)
        assert (header.axcodes, header.dtype) == (recipe.orientation, recipe.dtype)
        assert sorted(header.spacing_mm) == pytest.approx(sorted(recipe.spacing_mm), abs=1e-3)
        sidecar = (folder / file.path).with_name(f"sub-{file.subject}_T1w.json")
        told = json.loads(sidecar.read_text())
        assert told["RecipeSHA256"] == recipe.sha256
        assert 0.8 <= told["BrainMaskRatio"] <= 1.1


def test_made_subjects_are_kept_and_damaged_ones_made_again(
    cohort: tuple[Path, list[ImageFile]],
) -> None:
    folder, files = cohort
    first, second = (folder / file.path for file in files[:2])
    kept = first.stat().st_mtime_ns
    second.write_bytes(b"cut short")
    assert write_cohort(folder / "a", seed=1, subjects=3, root=folder, **SPACINGS) == files
    assert first.stat().st_mtime_ns == kept


def test_every_field_of_view_holds_the_brain() -> None:
    recipes = [_draw(index, seed=8) for index in range(1, 13)]
    assert len({recipe.shell for recipe in recipes}) == 2
    for recipe in recipes:
        rendered = render(recipe)
        assert rendered.problem is None, recipe
        codes = "".join(nibabel.aff2axcodes(rendered.affine))
        assert codes == recipe.orientation
        if recipe.shell:  # air has noise, and there is a scalp: more head than brain
            assert (rendered.array > 0).mean() > 0.5


def test_check_of_a_volume_names_what_is_wrong() -> None:
    good = {"array": np.zeros(1), "affine": np.eye(4), "mask_ratio": 1.0, "snr": 20.0}
    assert Rendered(**good, contrast=0.8).problem is None
    assert "contrast" in str(Rendered(**good, contrast=9.0).problem)
    assert "mask_ratio" in str(Rendered(**(good | {"mask_ratio": 0.5}), contrast=0.8).problem)
    assert "snr" in str(Rendered(**(good | {"snr": 1.0}), contrast=0.8).problem)


def test_recipes_stay_within_their_ranges() -> None:
    recipes = [_draw(index, coarse_spacing_mm=(2.0, 3.0)) for index in range(1, 301)]
    fine = [recipe for recipe in recipes if recipe.index % 3 == 0]
    coarse = [recipe for recipe in recipes if recipe.index % 3]
    assert all(2.0 <= mm <= 2.2 for recipe in fine for mm in recipe.spacing_mm)
    assert all(2.0 <= mm <= 3.0 for recipe in coarse for mm in recipe.spacing_mm)
    assert any(len(set(recipe.spacing_mm)) > 1 for recipe in coarse)
    assert 0.65 < np.mean([recipe.shell for recipe in coarse]) < 0.85
    assert np.mean([recipe.shell for recipe in fine]) < 0.45
    assert {recipe.dtype for recipe in recipes} == {"uint8", "int16", "uint16", "float32"}
    assert all(recipe.index % 3 for recipe in [_draw(1, fine_every=0)])


def test_wrong_parameters_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"images\.fine_spacing_mm"):
        _draw(1, fine_spacing_mm=(2.0,))
    with pytest.raises(ConfigError, match=r"images\.subjects"):
        write_cohort(tmp_path, seed=1, subjects=0, **SPACINGS)
