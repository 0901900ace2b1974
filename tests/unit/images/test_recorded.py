"""Recorded characteristics: the same volumes pass, others are named."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from voxcast.errors import ImageError
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
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast_apps.heads.grids import FixedGrid, Sizes
from voxcast_apps.heads.recipe import Recipe, draw_recipe, draw_varied_recipe
from voxcast_apps.heads.rendering import render, write_volume

SIZES = Sizes((60_000, 80_000, 200_000), (24, 128))


def _make(folder: Path, seed: int, subjects: int = 2) -> None:
    files = write_cohort(
        folder / "images", seed=seed, subjects=subjects, sizes=SIZES, label_prefix="t", root=folder
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
    rows = _recorded(batch).sort_values(["file_size_bytes", "subject"])
    for row in rows.iloc[::12][:2].to_dict("records"):
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
