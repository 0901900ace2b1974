"""What a question needs of voxels comes from the cache only for the very same bytes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

from voxcast.content_cache import ContentCache, entries_of
from voxcast.images.summary import FUNCTION, Grids, VolumeSummary, summarise
from voxcast.images.volume import Volume

GRIDS = Grids(32, 16)


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
