"""The foreground is the mask of ANTs, whatever the volume and however it is cut into windows."""

from __future__ import annotations

import os
from pathlib import Path

import ants
import nibabel
import numpy as np
import pytest
from scipy import ndimage

from voxcast.images import foreground as module
from voxcast.images import volume
from voxcast.images.foreground import VoxelBits, foreground
from voxcast.images.volume import Volume

REAL_T1 = os.environ.get("VOXCAST_REAL_T1")


def _blobs(seed: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Return thick and thin pieces, with holes, some of which touch or reach the border."""
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij")).astype(float)
    data = rng.normal(0, 0.2, shape)
    for _ in range(6):
        centre = rng.uniform(0, shape)[:, None, None, None]
        distance = np.sqrt(((grid - centre) ** 2).sum(0))
        data[distance < rng.uniform(3, 0.4 * max(shape))] = rng.uniform(1, 4)
        data[distance < rng.uniform(0, 5)] = 0
    return data.astype(np.float32)


def _of_ants(path: Path) -> np.ndarray:
    mask: np.ndarray = ants.get_mask(ants.image_read(str(path))).numpy() > 0
    return mask


@pytest.mark.parametrize("window_voxels", [1, module.WINDOW_VOXELS])
@pytest.mark.parametrize("shape", [(40, 33, 29), (25, 60, 7), (64, 9, 50)])
def test_the_mask_is_that_of_ants(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int],
    window_voxels: int,
) -> None:
    monkeypatch.setattr(module, "WINDOW_VOXELS", window_voxels)
    path = tmp_path / "a.nii.gz"
    for seed in range(3):
        nibabel.save(nibabel.Nifti1Image(_blobs(seed, shape), np.eye(4)), path)
        expected = _of_ants(path)
        found = Volume.open(path).read(points=max(shape)).foreground
        np.testing.assert_array_equal(found.coarse, expected)
        assert found.voxels == expected.sum()
        faces = [np.count_nonzero(np.diff(found.coarse, axis=axis)) for axis in range(3)]
        assert list(found.faces) == faces
        corners = np.argwhere(found.coarse)
        assert found.box_voxels == tuple(np.ptp(corners, axis=0) + 1)
        coarse = Volume.open(path).read(points=10).foreground.coarse
        i, j, k = (-(-n // 10) for n in shape)
        np.testing.assert_array_equal(coarse, found.coarse[::i, ::j, ::k])


def _dilated_lines(*lengths: int) -> np.ndarray:
    """Return lines of voxels along the first axis, far apart, grown by the ball of radius 2."""
    lines = np.zeros((60, 12, 10 * len(lengths)), bool)
    for number, length in enumerate(lengths):
        lines[3 : 3 + length, 5, 5 + 10 * number] = True
    ball = (np.square(np.indices((5, 5, 5)) - 2).sum(0)) <= 6
    grown: np.ndarray = ndimage.binary_dilation(lines, ball)
    return grown.astype(np.float32)


@pytest.mark.parametrize(
    ("lengths", "core_voxels"),
    [
        ((51,), 51),
        ((50,), 50),
        ((49,), None),
        ((51, 50, 49), 51),
        ((50, 49, 50), 100),  # equally large pieces are all kept
        ((49, 49, 30), None),  # too small: the ball of radius 1, and all pieces
    ],
)
def test_small_pieces_are_dropped_and_equal_ones_are_kept_as_by_ants(
    tmp_path: Path, lengths: tuple[int, ...], core_voxels: int | None
) -> None:
    data, path = _dilated_lines(*lengths), tmp_path / "a.nii"
    nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), path)
    of_volume = Volume.open(path).read().foreground
    np.testing.assert_array_equal(of_volume.coarse, _of_ants(path))
    assert of_volume.voxels == of_volume.coarse.sum()
    if core_voxels is None:
        assert of_volume.core_voxels > sum(lengths)
    else:
        assert of_volume.core_voxels == core_voxels


def _sparse_bright(rng: np.random.Generator, radius_voxels: float) -> np.ndarray:
    data = rng.normal(0, 0.01, (48, 48, 30))
    grid = np.indices(data.shape)
    for _ in range(12):
        centre = np.array([rng.integers(6, n - 6) for n in data.shape])
        data[np.square(grid - centre[:, None, None, None]).sum(0) <= radius_voxels**2] = 100
    return data


def _smooth_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    noise: np.ndarray = ndimage.gaussian_filter(rng.normal(size=shape), rng.uniform(0, 2.5))
    return noise


def test_the_mask_of_sparse_and_of_tiny_volumes_is_that_of_ants(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    cases = [_sparse_bright(rng, radius) for radius in (1.0, 2.3, 2.6, 3.0, 3.4, 4.0)]
    for _ in range(20):
        cases.append(_smooth_noise(rng, tuple(rng.integers(4, 28, 3))))
        slices = [*rng.integers(10, 40, 2), rng.integers(1, 3)]
        cases.append(_smooth_noise(rng, tuple(rng.permutation(slices))))
    path = tmp_path / "a.nii"
    for data in cases:
        nibabel.save(nibabel.Nifti1Image(data.astype(np.float32), np.eye(4)), path)
        of_volume = Volume.open(path).read().foreground
        expected = _of_ants(path).reshape(data.shape)
        np.testing.assert_array_equal(of_volume.coarse, expected, err_msg=str(data.shape))
        assert of_volume.voxels == expected.sum()


def test_a_volume_decompressed_twice_has_the_same_foreground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.nii.gz"
    nibabel.save(nibabel.Nifti1Image(_blobs(3, (40, 30, 20)), np.eye(4)), path)
    kept = Volume.open(path).read().foreground
    monkeypatch.setattr(volume, "KEPT_BYTES", 0)
    again = Volume.open(path).read().foreground
    np.testing.assert_array_equal(again.coarse, kept.coarse)
    assert (again.voxels, again.core_voxels) == (kept.voxels, kept.core_voxels)


@pytest.mark.parametrize("slope", [1.0, -2.5])
@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float32"])
def test_type_and_scaling_do_not_matter(tmp_path: Path, dtype: str, slope: float) -> None:
    stored = np.rint(40 + 20 * _blobs(1, (30, 28, 26))).clip(0, 250)
    image = nibabel.Nifti1Image(stored.astype(dtype), np.eye(4))
    image.header.set_slope_inter(slope, -11.5)
    image.to_filename(tmp_path / "a.nii")
    assert Volume.open(tmp_path / "a.nii").slope == pytest.approx(slope)
    values = stored * slope
    bits = VoxelBits(stored.shape)
    above = (values >= values.mean()).transpose(2, 1, 0)
    bits.set(0, above.ravel())
    expected = foreground(bits, (1, 1, 1))
    np.testing.assert_array_equal(
        Volume.open(tmp_path / "a.nii").read().foreground.coarse, expected.coarse
    )
    assert expected.above_mean_voxels == above.sum()


def test_voxels_that_are_not_finite_are_zero(tmp_path: Path) -> None:
    data = _blobs(2, (30, 28, 26))
    data[:, :, 3] = np.nan
    data[4, 5, 6] = np.inf
    zeroed = np.where(np.isfinite(data), data, 0)
    masks = []
    for name, voxels in (("a.nii", data), ("b.nii", zeroed)):
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / name)
        masks.append(Volume.open(tmp_path / name).read().foreground.coarse)
    np.testing.assert_array_equal(*masks)


@pytest.mark.skipif(REAL_T1 is None, reason="VOXCAST_REAL_T1 names no folder of real heads")
def test_the_mask_of_real_heads_is_that_of_ants() -> None:
    assert REAL_T1 is not None
    paths = sorted(Path(REAL_T1).glob("*.nii.gz"))[:3]
    assert paths
    for path in paths:
        expected = _of_ants(path).sum()
        assert Volume.open(path).read().foreground.voxels == expected, path.name
