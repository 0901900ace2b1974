"""The catalogue and the stages that write it; summaries of the very same bytes only."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
import yaml
from pydantic import TypeAdapter

from training_project import write_volume
from voxcast.content_cache import ContentCache, entries_of
from voxcast.errors import ImageError, TableError
from voxcast.images.catalogue import ON_RECORD, build_catalogue, read_on_record
from voxcast.images.characteristics import CHARACTERISTICS, VERSIONS
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.image_set import image_set_label
from voxcast.images.network_volume import volume_dtype
from voxcast.images.sources import ImageChoice, read_tsv, refresh
from voxcast.images.summary import FUNCTION, Grids, VolumeSummary, summarise
from voxcast.images.volume import Volume

ROOT = Path(__file__).parents[3]
GRIDS = Grids(32, 16)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two subjects with the same voxels, a third, and two bad ones."""
    folder = tmp_path / "bids"
    for subject, seed in (("01", 1), ("02", 1), ("03", 2)):
        write_volume(folder / f"sub-{subject}" / "anat" / f"sub-{subject}_T1w.nii.gz", seed)
    truncated = folder / "sub-04" / "anat" / "sub-04_T1w.nii.gz"
    write_volume(truncated, 3)
    truncated.write_bytes(truncated.read_bytes()[:-500])
    (folder / "sub-05" / "anat").mkdir(parents=True)
    (folder / "sub-05" / "anat" / "sub-05_T1w.nii").write_text("no image")
    return folder


def test_invalid_volumes_are_listed_and_the_others_are_read(dataset: Path, tmp_path: Path) -> None:
    assert build_catalogue(refresh(dataset), tmp_path / "out", GRIDS) == 2
    table = pd.read_parquet(tmp_path / "out/catalogue.parquet")
    names = ["volume_id", "subject", "session", "suffix", "path", "problem"]
    numbers = [*CHARACTERISTICS, VERSIONS]
    assert list(table) == [*names, *HEADER_COLUMNS, "voxel_sha256", *numbers]
    assert list(table.subject) == ["01", "02", "03", "04", "05"]
    good = table.problem.isna()
    assert good.tolist() == table.volume_id.notna().tolist() == [True, True, True, False, False]
    assert re.search(f"{dataset}.*truncated", table.problem[3])
    assert "not a NIfTI" in table.problem[4]
    assert table.volume_id[0] == table.volume_id[1] == table.voxel_sha256[0][:16]
    assert table[numbers].notna().all(axis=1).tolist() == good.tolist()
    with np.load(tmp_path / "out/volumes.npz", allow_pickle=False) as stored:
        assert list(stored["volume_id"]) == sorted(set(table.volume_id[good]))
        assert stored["volumes"].shape == (2,)
        assert stored["volumes"].dtype == volume_dtype(16)


def test_a_volume_above_the_limit_is_listed_and_not_read(dataset: Path, tmp_path: Path) -> None:
    large = dataset / "sub-07" / "anat" / "sub-07_T1w.nii.gz"
    large.parent.mkdir(parents=True)
    nibabel.save(nibabel.Nifti1Image(np.ones((50, 50, 50), np.int16), np.eye(4)), large)
    assert build_catalogue(refresh(dataset), tmp_path / "out", GRIDS, max_voxels=40_000) == 3
    problem = pd.read_parquet(tmp_path / "out/catalogue.parquet").problem[5]
    assert "has 125000 voxels (50 x 50 x 50), at most 40000 are read" in problem
    assert "features.max_voxels" in problem


def test_file_that_changed_since_it_was_listed(dataset: Path, tmp_path: Path) -> None:
    files = refresh(dataset)
    write_volume(Path(files[0].path), 9)
    os.utime(files[0].path, ns=(1, 1))
    build_catalogue(files, tmp_path / "out", GRIDS)
    assert "changed" in pd.read_parquet(tmp_path / "out/catalogue.parquet").problem[0]


def test_no_good_volume_is_an_error_with_the_first_reason(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"none of 2 volumes .* truncated"):
        build_catalogue(refresh(dataset)[3:], tmp_path / "out", GRIDS)
    with pytest.raises(ImageError, match="empty"):
        build_catalogue([], tmp_path / "out", GRIDS)


def test_stages_take_a_users_dataset_by_reference(dataset: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = (ROOT / "params.yaml").read_text()
    text = text.replace("kind: cohort", "kind: bids").replace("path: null", f"path: {dataset}")
    (project / "params.yaml").write_text(text)
    before = {path: path.stat().st_mtime_ns for path in dataset.rglob("*")}
    for name in ("images", "catalogue"):
        command = [sys.executable, str(ROOT / "pipelines" / f"{name}.py")]
        completed = subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=False
        )
        assert completed.returncode == 0, completed.stderr
    assert "2 of 5 volumes cannot be used" in completed.stderr
    assert [path.name for path in (project / "data/images").iterdir()] == ["images.tsv"]
    listed = read_tsv(project / "data/images/images.tsv")
    assert listed[0].path == str(dataset / "sub-01/anat/sub-01_T1w.nii.gz")
    assert len(pd.read_parquet(project / "data/catalogue/catalogue.parquet")) == 5
    on_record = read_on_record(project / "data/catalogue/on_record.parquet")
    assert set(on_record["image_set"]) == {f"{tmp_path.name}/bids"}
    assert len(on_record) == 2  # two of the three have the same voxels
    assert {path: path.stat().st_mtime_ns for path in dataset.rglob("*")} == before


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ({"seed": 7}, "cohort 7"),
        ({"seed": 7, "label_prefix": "s"}, "cohort s 7"),
        ({"kind": "bids", "path": "/data/study/bids"}, "study/bids"),
        ({"kind": "bids", "path": "/heads"}, "heads"),
    ],
)
def test_an_image_set_is_named_by_its_folders_or_its_seed(
    values: dict[str, object], label: str
) -> None:
    cohort = yaml.safe_load((ROOT / "params.yaml").read_text())["images"]
    choice = TypeAdapter(ImageChoice).validate_json(json.dumps({**cohort, **values}))
    assert image_set_label(choice) == label


def image_set(folder: Path, *seeds: int) -> Path:
    for seed in seeds:
        write_volume(folder / f"head{seed}.nii.gz", seed)
    return folder


def catalogue(images: Path, out: Path, label: str, points: int = 16) -> pd.DataFrame:
    build_catalogue(refresh(images), out, Grids(32, points), image_set=label)
    return read_on_record(out / ON_RECORD)


def small_volumes(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "volumes.npz", allow_pickle=False) as stored:
        return dict(zip(stored["volume_id"], stored["volumes"], strict=True))


def test_a_second_image_set_adds_to_the_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = catalogue(image_set(tmp_path / "a", 1, 2), out, "a")
    second = catalogue(image_set(tmp_path / "b", 3), out, "b")
    assert {*CHARACTERISTICS, *HEADER_COLUMNS, VERSIONS} < {*second}
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
    again = tmp_path / "b" / "other.nii"
    write_volume(again, 1)  # the same voxels in another file
    after = catalogue(tmp_path / "b", out, "b")
    assert list(after.volume_id) == list(before.volume_id)
    row = after.set_index("subject").loc["other"]
    assert (row.image_set, row.file_size_bytes) == ("b", again.stat().st_size)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    catalogue(image_set(tmp_path / "a", 1), out, "a")
    newer = CHARACTERISTICS["noise_ratio"]._replace(version=2)
    monkeypatch.setitem(CHARACTERISTICS, "noise_ratio", newer)
    rows = read_on_record(out / ON_RECORD)
    assert rows["noise_ratio"].isna().all()
    assert rows["foreground_voxels"].notna().all()


def head(path: Path, seed: int = 3) -> Path:
    """Write an ellipsoid with texture in noisy air; its size does not depend on the seed."""
    rng, shape = np.random.default_rng(seed), (60, 50, 40)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    inside = (grid**2).sum(0) < 0.3 + 0.1 * seed
    values = np.abs(rng.normal(0, 20, shape)) + inside * (700 + 200 * grid[0])
    nibabel.save(nibabel.Nifti1Image(values.astype("int16"), np.eye(4)), path)
    return path


def summary(path: Path, cache: ContentCache | None, **options: Any) -> VolumeSummary:
    chosen = {"grids": GRIDS, "max_voxels": 10**6} | options
    return summarise(Volume.open(path), **chosen, cache=cache)


def assert_same(a: VolumeSummary, b: VolumeSummary) -> None:
    assert (a.voxel_sha256, a.characteristics) == (b.voxel_sha256, b.characteristics)
    assert a.network_volume is not None
    assert b.network_volume is not None
    assert a.network_volume.tobytes() == b.network_volume.tobytes()
    assert a.network_volume.dtype == b.network_volume.dtype


def test_the_same_bytes_give_the_same_answer_and_are_read_once(tmp_path: Path) -> None:
    cache, path = ContentCache(tmp_path / "cache"), head(tmp_path / "a.nii")
    copy = shutil.copy(path, tmp_path / "another name.nii")
    plain = summary(path, None)
    for image in (path, Path(copy), path):
        assert_same(summary(image, cache), plain)
    assert cache.events() == {FUNCTION: {"hit": 2, "miss": 1}}
    without = summary(path, cache, grids=Grids(32))
    assert without.network_volume is None
    assert cache.counts["miss", FUNCTION] == 2


def test_a_file_that_was_changed_in_place_with_its_time_set_back_is_read_anew(
    tmp_path: Path,
) -> None:
    cache, path = ContentCache(tmp_path / "cache"), head(tmp_path / "a.nii")
    before, status = summary(path, cache), path.stat()
    path.write_bytes(head(tmp_path / "b.nii", seed=4).read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        status.st_ino, status.st_size, status.st_mtime_ns,
    )  # fmt: skip
    answer = summary(path, cache)
    assert answer.characteristics != before.characteristics
    assert_same(answer, summary(path, None))


def test_a_file_that_is_replaced_while_it_is_read_is_not_remembered(tmp_path: Path) -> None:
    path, other = head(tmp_path / "a.nii"), head(tmp_path / "b.nii", seed=4)
    original = path.read_bytes()

    class ReplacedMeanwhile(ContentCache):
        def get(self, *key: Any) -> Any:
            arrays = super().get(*key)
            shutil.copy(other, path)  # between the hash and the reading
            return arrays

    summary(path, ReplacedMeanwhile(tmp_path / "cache"))
    assert list(entries_of(tmp_path / "cache")) == []
    path.write_bytes(original)
    assert_same(summary(path, ContentCache(tmp_path / "cache")), summary(path, None))


def test_a_damaged_entry_is_read_anew(tmp_path: Path) -> None:
    cache, path = ContentCache(tmp_path / "cache"), head(tmp_path / "a.nii")
    plain = summary(path, cache)
    ((_, _, entry),) = entries_of(cache.folder)
    content = bytearray(entry.read_bytes())
    for place in range(0, len(content), 499):
        entry.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        assert_same(summary(path, cache), plain)
    np.savez(entry, something=np.zeros(2))
    assert_same(summary(path, cache), plain)
    assert cache.counts["damaged", FUNCTION] > 0
