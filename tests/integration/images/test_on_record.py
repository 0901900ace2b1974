"""What stays on record of volumes whose image set is replaced."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.images.catalogue import ON_RECORD, build_catalogue, columns_of, read_on_record
from voxcast.images.characteristics import versions_of
from voxcast.images.sources import refresh


def save(path: Path, seed: int, *, spacing_mm: float = 1.0) -> Path:
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 50, (30, 32, 34)).astype(np.int16)
    array[8:22, 8:22, 8 : 16 + seed % 8] += 500
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


def image_set(folder: Path, *seeds: int) -> Path:
    for seed in seeds:
        save(folder / f"head{seed}.nii.gz", seed)
    return folder


def catalogue(images: Path, out: Path, label: str, points: int = 16) -> pd.DataFrame:
    build_catalogue(refresh(images), out, 32, points, image_set=label)
    return read_on_record(out / ON_RECORD)


def small_volumes(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "volumes.npz", allow_pickle=False) as stored:
        return dict(zip(stored["volume_id"], stored["volumes"], strict=True))


def test_a_second_image_set_adds_to_the_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = catalogue(image_set(tmp_path / "a", 1, 2), out, "a")
    second = catalogue(image_set(tmp_path / "b", 3), out, "b")
    assert list(second) == list(columns_of(versions_of({})))
    assert dict(zip(second.subject, second.image_set, strict=True)) == {
        "head1": "a", "head2": "a", "head3": "b"
    }  # fmt: skip
    earlier = second[second.image_set == "a"].reset_index(drop=True)
    pd.testing.assert_frame_equal(earlier, first)
    assert list(pd.read_parquet(out / "catalogue.parquet").subject) == ["head3"]
    volumes = small_volumes(out)
    assert set(volumes) == set(second.volume_id)
    alone = tmp_path / "alone"
    catalogue(tmp_path / "a", alone, "a")
    for volume_id, cube in small_volumes(alone).items():
        assert np.array_equal(volumes[volume_id], cube)


def test_a_volume_that_is_catalogued_again_replaces_its_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = catalogue(image_set(tmp_path / "a", 1, 2), out, "a")
    compressed = tmp_path / "b" / "other.nii"
    save(compressed, 1)  # the same voxels in another file
    after = catalogue(tmp_path / "b", out, "b")
    assert list(after.volume_id) == list(before.volume_id)
    again = after.set_index("subject").loc["other"]
    assert again.image_set == "b"
    assert again.file_size_bytes == compressed.stat().st_size
    assert sorted(after.subject) == ["head2", "other"]


@pytest.mark.parametrize("name", [ON_RECORD, "volumes.npz"])
@pytest.mark.parametrize("kind", ["broken", "truncated", "foreign"])
def test_a_record_that_cannot_be_read_is_one_line_and_changes_nothing(
    name: str, kind: str, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", tmp_path / "out" / name
    catalogue(image_set(tmp_path / "a", 1), out, "a")
    if kind == "broken":
        path.write_bytes(b"no table at all")
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
    elif name == ON_RECORD:
        pd.DataFrame({"volume_id": ["x"], "mass": [1.0]}).to_parquet(path)
    else:
        np.savez(path, mass=np.ones(3))
    before = {file: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(TableError, match="dvc checkout") as error:
        catalogue(image_set(tmp_path / "b", 2), out, "b")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert {file: file.read_bytes() for file in out.iterdir()} == before


def test_a_characteristic_of_another_version_is_unknown_and_the_others_stay(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    catalogue(image_set(tmp_path / "a", 1), out, "a")
    versions = {**versions_of({}), "noise_ratio": 2}
    rows = read_on_record(out / ON_RECORD, versions)
    assert rows["noise_ratio"].isna().all()
    assert rows["foreground_voxels"].notna().all()
