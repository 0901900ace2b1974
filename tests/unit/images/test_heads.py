"""Generated heads: the same for the same seed, as recorded, written once."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from voxcast.errors import ConfigError, ImageError
from voxcast.files import sha256_of
from voxcast.images.catalogue import (
    FLOOR,
    FLOORS,
    build_catalogue,
    check_recorded,
    recorded_images,
)
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.image_set import generated_ids, recipes_in, write_cohort
from voxcast.images.sources import ImageFile, find_images
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast_apps.heads import template
from voxcast_apps.heads.grids import FixedGrid, Sizes, free_grid
from voxcast_apps.heads.recipe import (
    DESCRIPTIONS,
    VARIETY_DESCRIPTIONS,
    Recipe,
    draw_recipe,
    draw_varied_recipe,
)
from voxcast_apps.heads.rendering import Rendered, render, tissue_labels, write_volume

SIZES = Sizes((60_000, 80_000, 200_000), (24, 128), (FixedGrid(3, 3, (40, 48, 40), 4.8),))


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


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({}, "None"), ({"contrast": 9.0}, "contrast"), ({"mask_ratio": 0.5}, "mask_ratio"),
     ({"snr": 1.0}, "snr")],
)  # fmt: skip
def test_check_of_a_volume_reports_the_problem(changes: dict[str, float], problem: str) -> None:
    good = {"mask_ratio": 1.0, "snr": 20.0, "contrast": 0.8}
    assert problem in str(Rendered(np.zeros(1), np.eye(4), **(good | changes)).problem)


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


def test_a_head_on_a_coarse_grid_is_the_same_head() -> None:
    recipe = replace(draw_varied_recipe(3, 1, Sizes((60_000, 200_000), (24, 128))),
                     shape=(64, 80, 80), spacing_mm=(3.0, 3.0, 3.0), noise=0.01,
                     corner_mm=(-95.0, -140.0, -125.0))  # fmt: skip
    coarse = recipe.on_grid((32, 40, 40))
    fine, small = render(recipe), render(coarse)
    assert small.array.shape == (32, 40, 40)
    assert small.mask_ratio == pytest.approx(fine.mask_ratio, rel=0.02)
    box = fine.array.reshape(32, 2, 40, 2, 40, 2).mean((1, 3, 5))
    assert np.corrcoef(box.ravel(), small.array.ravel())[0, 1] > 0.95


CONF = Path(__file__).parents[3] / "conf/images"


def test_recorded_sets_share_no_seed_and_no_subject() -> None:
    raw = [yaml.safe_load((CONF / f"{name}.yaml").read_text()) for name in
           ("cohort", "cohort_reference", "cohort_second", "cohort_reference2")]  # fmt: skip
    assert len({r["seed"] for r in raw}) == len({r["label_prefix"] for r in raw}) == 4
    different = ("seed", "subjects", "label_prefix")
    first, second = ({k: v for k, v in r.items() if k not in different} for r in raw[1:3])
    assert first == second


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


LARGER = Sizes(voxels=(200_000, 250_000, 300_000), axis_voxels=(32, 160))


@pytest.mark.parametrize("index", [1, 2, 3])
def test_labels_lie_where_the_images_tissues_are(index):
    recipe = draw_recipe(21, index, LARGER)
    labels, image = tissue_labels(recipe), render(recipe)
    assert labels.shape == image.array.shape
    assert labels.dtype == np.uint8
    csf, grey, white = (float(np.median(image.array[labels == n])) for n in (1, 2, 3))
    assert csf < grey < white


def test_the_tissues_fill_the_brain_of_the_image():
    recipe = draw_recipe(21, 4, LARGER)
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


FREE = Sizes((60_000, 80_000, 200_000), (24, 128))


def _make(folder: Path, seed: int, subjects: int = 2) -> None:
    files = write_cohort(
        folder / "images", seed=seed, subjects=subjects, sizes=FREE, label_prefix="t", root=folder
    )
    ids = generated_ids(folder / "images", folder)
    build_catalogue(files, folder / "catalogue", Grids(32, 16), ids, root=folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("recorded")
    _make(folder, seed=1)
    return folder, recorded_images(folder / "catalogue", folder / "images")


def _record(table: pd.DataFrame, folder: Path) -> Path:
    table.to_parquet(folder / "images.parquet")
    return folder / "images.parquet"


def test_table_holds_recipe_header_and_characteristics(
    recorded: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, table = recorded
    assert {*HEADER_COLUMNS, *CHARACTERISTICS, "noise", "gamma", "shell"} <= set(table)
    assert list(table.subject) == ["t0001", "t0002"]
    assert set(table.volume_id) == set(recipes_in(folder / "images"))
    assert table.notna().all(axis=None)
    assert check_recorded(folder / "catalogue", _record(table, tmp_path)) == 2


def test_small_differences_of_processors_pass(
    recorded: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, table = recorded
    other = table.assign(
        foreground_ml=table.foreground_ml * 1.0009,
        noise_ratio=table.noise_ratio + 5e-5,
        component_count=table.component_count + 1,
    )
    assert check_recorded(folder / "catalogue", _record(other, tmp_path)) == 2


def test_differing_volumes_and_characteristics_are_reported(
    recorded: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, table = recorded
    other = table.copy()
    other.loc[1, "entropy_bits"] *= 1.002
    path = _record(other, tmp_path)
    message = f"volume {table.volume_id[1]} of subject t0002: entropy_bits is .* recorded as"
    with pytest.raises(ImageError, match=message):
        check_recorded(folder / "catalogue", path)
    assert check_recorded(folder / "catalogue", path, rtol=0.01) == 2


def test_another_recipe_and_a_missing_volume_are_reported(
    recorded: tuple[Path, pd.DataFrame], tmp_path: Path
) -> None:
    folder, table = recorded
    other = table.assign(volume_id=["0" * 16, "1" * 16], subject=["t0001", "t0009"])
    message = "subject t0001 is of another recipe or generator now; .* subject t0009 is missing"
    with pytest.raises(ImageError, match=message):
        check_recorded(folder / "catalogue", _record(other, tmp_path))
    some = table.assign(volume_id=[table.volume_id[0], "1" * 16])
    assert check_recorded(folder / "catalogue", _record(some, tmp_path), require_all=False) == 1


ROOT = Path(__file__).parents[3]
SETS = {name: f"cohort_{name}" for name in ("reference", "second", "reference2")}


def _recorded(batch: str) -> pd.DataFrame:
    return pd.read_parquet(ROOT / "data/history" / batch / "images.parquet")


def _recipe(batch: str, index: int, attempt: int) -> Recipe:
    raw = yaml.safe_load((ROOT / f"conf/images/{SETS[batch]}.yaml").read_text())
    fixed = tuple(FixedGrid(**{**g, "shape": tuple(g["shape"])}) for g in raw["fixed_grids"])
    sizes = Sizes(tuple(raw["voxels"]), tuple(raw["axis_voxels"]), fixed)
    draw = draw_varied_recipe if raw["kind"] == "varied_cohort" else draw_recipe
    return draw(raw["seed"], index, sizes, attempt)


@pytest.mark.parametrize("batch", SETS)
def test_recorded_recipes_are_drawn_again(batch: str) -> None:
    for row in _recorded(batch).to_dict("records"):
        recipe = _recipe(batch, row["index"], row["attempt"])
        assert recipe.sha256 == row["recipe_sha256"], row["subject"]
        assert recipe.generator_version == row["generator_version"]
        assert (recipe.variety is None) == ("variety" not in recipe.columns())
        assert (recipe.variety is None) == (batch != "reference2")


@pytest.mark.parametrize("batch", SETS)
def test_recorded_volumes_are_rendered_again(batch: str, tmp_path: Path) -> None:
    rows = _recorded(batch).sort_values(["file_size_bytes", "subject"]).to_dict("records")
    some = rows[:13:12]
    for removed in ("deface_mm", "neck_mm"):
        some += [row for row in rows if row.get("variety", {}).get(removed)][:1]
    for row in some:
        rendered = render(_recipe(batch, row["index"], row["attempt"]))
        path = tmp_path / f"{row['subject']}.nii.gz"
        write_volume(path, rendered.array, rendered.affine)
        look = summarise(Volume.open(path), Grids(64))
        # Voxels are the same on one kind of processor, numbers on all of them.
        if look.voxel_sha256 != row["voxel_sha256"]:
            for name in CHARACTERISTICS:
                floor = FLOORS.get(name, FLOOR)
                expected = pytest.approx(row[name], rel=1e-3, abs=floor)
                assert look.characteristics[name] == expected, (row["subject"], name)
