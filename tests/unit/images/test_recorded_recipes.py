"""Recorded volumes can be made again: their recipes and their voxels are as they were."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.recorded import FLOOR, FLOORS
from voxcast.images.summary import Grids, summarise
from voxcast.images.volume import Volume
from voxcast_apps.heads.grids import FixedGrid, Sizes
from voxcast_apps.heads.recipe import Recipe, draw_recipe, draw_varied_recipe
from voxcast_apps.heads.rendering import render, write_volume

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
    for row in rows.iloc[::12][:4].to_dict("records"):
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
