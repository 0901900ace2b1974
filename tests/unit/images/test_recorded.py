"""Recorded characteristics: the same volumes pass, others are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from voxcast.errors import ImageError
from voxcast.images.catalogue import build_catalogue
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.image_set import generated_ids, recipes_in, write_cohort
from voxcast.images.recorded import check_recorded, recorded_images
from voxcast_apps.heads.grids import Sizes

if TYPE_CHECKING:
    from pathlib import Path

SIZES = Sizes((60_000, 80_000, 200_000), (24, 128))


def _make(folder: Path, seed: int, subjects: int = 2) -> None:
    files = write_cohort(
        folder / "images", seed=seed, subjects=subjects, sizes=SIZES, label_prefix="t", root=folder
    )
    ids = generated_ids(folder / "images", folder)
    build_catalogue(files, folder / "catalogue", 32, 16, ids, root=folder)


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
