"""One reading of a volume: its hash and its coarse grid."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest

from voxcast.errors import ImageError
from voxcast.images.volume import Volume

AFFINE = np.diag([-2.0, 2.0, 2.0, 1.0])


def _head(shape: tuple[int, ...] = (90, 70, 50), dtype: str = "int16") -> np.ndarray:
    """An ellipsoid with texture in noisy air."""
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij"))
    inside = (grid**2).sum(0) < 0.6
    values = np.abs(rng.normal(0, 20, shape)) + inside * (700 + 200 * grid[0])
    return values.astype(dtype)


def _save(path: Path, array: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


def test_nan_becomes_zero_and_nan_only_is_refused(tmp_path: Path) -> None:
    array = _head(dtype="float32")
    array[:10] = np.nan
    array[11] = np.inf
    coarse = Volume.open(_save(tmp_path / "a.nii.gz", array)).coarse(90)
    assert np.isfinite(coarse.data).all()
    assert (coarse.data[:10] == 0).all()
    path = _save(tmp_path / "b.nii.gz", np.full((8, 8, 8), np.nan, np.float32))
    with pytest.raises(ImageError, match=r"b\.nii\.gz.*NaN only"):
        Volume.open(path).coarse()


def test_constant_is_refused_but_not_when_the_coarse_grid_missed_it(tmp_path: Path) -> None:
    array = np.zeros((20, 20, 20), np.uint8)
    with pytest.raises(ImageError, match="constant"):
        Volume.open(_save(tmp_path / "a.nii.gz", array)).coarse()
    array[1, 1, 1] = 1
    assert Volume.open(_save(tmp_path / "b.nii.gz", array)).coarse(10).data.max() == 0


def test_a_range_beyond_single_precision_is_refused(tmp_path: Path) -> None:
    tiny, wide, bright = (_head(dtype="float64") for _ in range(3))
    tiny *= 1e-45
    wide = (wide - 500) * 6e35
    bright[1, 1, 1:5] = 1.7e308  # none of them on the coarse grid
    for array in (tiny, wide, bright):
        with pytest.raises(ImageError, match=r"a\.nii.*single precision"):
            Volume.open(_save(tmp_path / "a.nii", array)).read()


def test_damaged_voxels_are_detected(tmp_path: Path) -> None:
    path = _save(tmp_path / "a.nii.gz", _head())
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(ImageError, match="damaged"):
        list(Volume.open(path).blocks())


def test_voxel_hash_depends_on_content(tmp_path: Path) -> None:
    array = _head()
    packed = Volume.open(_save(tmp_path / "a.nii.gz", array)).read().voxel_sha256
    assert Volume.open(_save(tmp_path / "b.nii", array)).read().voxel_sha256 == packed
    moved = AFFINE.copy()
    moved[0, 3] = 5
    assert Volume.open(_save(tmp_path / "c.nii", array, moved)).read().voxel_sha256 != packed
    array[0, 0, 0] += 1
    assert Volume.open(_save(tmp_path / "d.nii", array)).read().voxel_sha256 != packed
