"""Volumes: headers and their faults, characteristics, and the mask of ANTs."""

import gzip
import os
import struct
from pathlib import Path

import ants
import nibabel
import numpy as np
import pytest
from scipy import ndimage

from voxcast.errors import ImageError
from voxcast.images import foreground as module
from voxcast.images import volume
from voxcast.images.characteristics import CHARACTERISTICS, characteristics
from voxcast.images.foreground import VoxelBits, foreground
from voxcast.images.header import HEADER_COLUMNS
from voxcast.images.volume import Volume


def _save(path: Path, array: np.ndarray, affine: np.ndarray | None = None) -> Path:
    affine = np.diag([2.0, 2.0, 3.0, 1.0]) if affine is None else affine
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


def _noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1000, shape).astype(np.int16)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_header_describes_grid_and_storage(tmp_path: Path, name: str) -> None:
    path = _save(tmp_path / name, _noise(10, 12, 14))
    header = Volume.open(path).header
    values = (10, 12, 14, 2.0, 2.0, 3.0, "RAS", 0.0, "int16", 2, path.stat().st_size)
    assert header.columns() == dict(zip(HEADER_COLUMNS, values, strict=True))
    assert header.voxels == 10 * 12 * 14


def test_header_of_oblique_and_flipped_axes(tmp_path: Path) -> None:
    turn = np.deg2rad(10)
    affine = np.eye(4)
    affine[:2, :2] = [[-np.cos(turn), np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    header = Volume.open(_save(tmp_path / "a.nii.gz", _noise(8, 8, 8), affine)).header
    assert header.axcodes == "LAS"
    assert header.obliqueness_deg == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize(
    ("unit", "mm"), [("micron", 1e-3), ("meter", 1e3), ("mm", 1.0), ("unknown", 1.0)]
)
def test_spacing_is_in_millimetres_as_itk_reads_it(tmp_path: Path, unit: str, mm: float) -> None:
    ants = pytest.importorskip("ants")
    affine = np.diag([0.5 / mm, 0.5 / mm, 0.8 / mm, 1.0])
    image = nibabel.Nifti1Image(_noise(10, 12, 14), affine)
    image.header.set_xyzt_units(unit, "sec")
    nibabel.save(image, tmp_path / "a.nii")
    spacing_mm = Volume.open(tmp_path / "a.nii").header.spacing_mm
    assert spacing_mm == pytest.approx((0.5, 0.5, 0.8), rel=1e-4)
    assert spacing_mm == pytest.approx(ants.image_read(str(tmp_path / "a.nii")).spacing, rel=1e-4)


def test_trailing_axis_of_one_and_nifti2_are_accepted(tmp_path: Path) -> None:
    assert Volume.open(_save(tmp_path / "a.nii.gz", _noise(5, 6, 7, 1))).header.shape == (5, 6, 7)
    nibabel.save(nibabel.Nifti2Image(_noise(5, 6, 7), np.eye(4)), tmp_path / "b.nii")
    assert Volume.open(tmp_path / "b.nii").header.shape == (5, 6, 7)


@pytest.mark.parametrize("make", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("endianness", ["<", ">"])
def test_a_header_extension_without_end_is_refused(
    tmp_path: Path, make: type, endianness: str
) -> None:
    header = make.header_class(endianness=endianness)
    header.set_data_dtype(np.int16)
    image = make(_noise(4, 4, 4), np.eye(4), header)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5000))
    path = tmp_path / "a.nii.gz"
    nibabel.save(image, path)
    assert Volume.open(path).header.shape == (4, 4, 4)
    raw = bytearray(gzip.decompress(path.read_bytes()))
    position, kind = (108, "f") if make is nibabel.Nifti1Image else (168, "q")
    beyond = (10**9, 2**27) if kind == "q" else (1e9, float("inf"), float("nan"))
    for offset in (0, 256, *beyond):  # in the header, and far behind it
        struct.pack_into(endianness + kind, raw, position, offset)
        path.write_bytes(gzip.compress(raw))
        with pytest.raises(ImageError, match="voxels begin at byte"):
            Volume.open(path)


def _image(array: np.ndarray, affine: np.ndarray | None = None, **fields: object) -> bytes:
    image = nibabel.Nifti1Image(array, np.eye(4))
    if affine is not None:
        image.set_sform(affine, 1)
        image.set_qform(None, 0)
    for name, value in fields.items():
        image.header[name] = value
    return nibabel.Nifti1Image(array, None, image.header).to_bytes()


def _with_axis(*axis: float) -> np.ndarray:
    affine = np.diag([4e3, 4e3, 4.0, 1.0])
    affine[:3, 0] = axis
    return affine


SMALL = _noise(4, 4, 4)
NOISE = gzip.compress(_image(_noise(30, 30, 30)))
AT_MINUS_INFINITY = bytearray(_image(SMALL))
struct.pack_into("<f", AT_MINUS_INFINITY, 108, -np.inf)
COLOUR = np.zeros((4, 4, 4), np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no image, but long enough to be mistaken for one " * 20, "not a NIfTI|gzip"),
        (gzip.compress(b"this is no image " * 100), "not a NIfTI"),
        (b"", "empty"),
        (NOISE[: len(NOISE) // 2], "truncated"),
        (NOISE[:60], "truncated"),
        (gzip.compress(gzip.decompress(NOISE)[:-100]), "cut short"),
        (gzip.compress(_image(np.zeros((4, 0, 4), np.int16))), "no voxels"),
        (gzip.compress(_image(_noise(4, 4, 4, 3))), "4 axes .* where 3 are needed"),
        (gzip.compress(_image(_noise(4, 4))), "2 axes"),
        (gzip.compress(_image(COLOUR)), "not numbers"),
        (gzip.compress(_image(SMALL, sform_code=0, qform_code=0)), "no affine"),
        (gzip.compress(_image(SMALL, np.eye(4), srow_z=0)), "singular"),
        (gzip.compress(_image(SMALL, _with_axis(0, 1e18, 1e-12))), "singular"),  # in a plane
        (gzip.compress(_image(SMALL, _with_axis(1e-6, 0, 0))), "singular"),  # thinner than an atom
        (gzip.compress(AT_MINUS_INFINITY), "begin at byte -inf"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # compressed bytes differ by time
)
def test_an_invalid_file_is_reported_with_its_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "bad.nii.gz"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=reason) as caught:
        Volume.open(path)
    assert str(path) in str(caught.value)
    assert caught.value.then
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"), [("a.nii", "cut short"), ("none.nii", "no such file"), (".", "folder")]
)
def test_plain_file_cut_short_missing_and_folder(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "a.nii").write_bytes(_image(_noise(10, 10, 10))[:-1])
    with pytest.raises(ImageError, match=reason):
        Volume.open(tmp_path / name)


@pytest.mark.parametrize(
    "name",
    ["minc2_1_scale.mnc", "bad_datatype+orig.HEAD", "phantom_truncated.REC"],
)
def test_images_of_other_formats_are_refused_alike(name: str) -> None:
    """Also where nibabel lacks a package for them, or has errors of its own."""
    path = Path(nibabel.__file__).parent / "tests" / "data" / name
    with pytest.raises(ImageError, match="not a NIfTI file"):
        Volume.open(path)


def _values(folder: Path, data: np.ndarray, points: int = 64) -> dict[str, float]:
    """Return the characteristics of a file of 1 mm with these voxels."""
    nibabel.save(nibabel.Nifti1Image(data.astype(np.float32), np.eye(4)), folder / "a.nii")
    return _of(folder / "a.nii", points)


def _of(path: Path, points: int = 64) -> dict[str, float]:
    return characteristics(Volume.open(path).read(points))


def _ball(n: int = 48, radius: float = 15.0, noise: float = 0.0) -> np.ndarray:
    grid = np.stack(np.mgrid[:n, :n, :n]) - (n - 1) / 2
    ball = 100.0 * ((grid**2).sum(0) <= radius**2)
    return ball + np.random.default_rng(1).normal(0, noise, ball.shape)


@pytest.mark.parametrize("points", [48, 24, 12])
def test_extent_of_a_ball_does_not_depend_on_the_coarse_grid(tmp_path: Path, points: int) -> None:
    values = _values(tmp_path, _ball(), points)
    assert values["foreground_voxels"] == pytest.approx((_ball() > 0).sum(), rel=0.01)
    assert values["foreground_ml"] == pytest.approx(values["foreground_voxels"] / 1000)
    assert values["foreground_extent_fraction"] == pytest.approx((30 / 48) ** 3)
    # The sides of voxels of a ball have 1.5 times its surface.
    assert values["foreground_surface_ratio"] == pytest.approx(1.5, rel=0.05)


def test_holes_are_filled_and_specks_removed(tmp_path: Path) -> None:
    solid = _ball()
    hollow = solid - _ball(radius=6.0)
    hollow[2:5, 2:5, 2:5] = 100
    expected = _values(tmp_path, solid)
    values = _values(tmp_path, hollow)
    assert values["foreground_voxels"] == expected["foreground_voxels"]
    assert values["component_count"] == 2


def test_intensity_scale_does_not_matter(tmp_path: Path) -> None:
    data = _ball(noise=5)
    turned = _values(tmp_path, 1e-3 * data - 7)
    assert list(turned) == list(CHARACTERISTICS)
    for name, value in _values(tmp_path, data).items():
        assert turned[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


def test_noise_bias_and_side_change_the_characteristics(tmp_path: Path) -> None:
    clean, noisy = (_values(tmp_path, _ball(noise=s)) for s in (1, 8))
    assert noisy["noise_ratio"] > 4 * clean["noise_ratio"]
    ramp = np.linspace(0.5, 1.5, 48)[:, None, None]
    assert _values(tmp_path, _ball() * ramp)["bias_strength"] > 0.1
    assert clean["bias_strength"] < 0.02
    half = _ball()
    half[30:, :24] = 0
    assert _values(tmp_path, half)["asymmetry"] > clean["asymmetry"] + 0.1


def test_orientation_does_not_matter(tmp_path: Path) -> None:
    data = _ball(noise=2)
    data[:10] = 0
    image = nibabel.Nifti1Image(data.astype(np.float32), np.eye(4))
    turned = image.as_reoriented(nibabel.orientations.axcodes2ornt(("S", "R", "A")))
    nibabel.save(turned, tmp_path / "b.nii")
    other = _of(tmp_path / "b.nii")
    for name, value in _values(tmp_path, data).items():
        assert other[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name


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
    paths = sorted(Path(REAL_T1).glob("*.nii.gz"))[:1]
    assert paths
    for path in paths:
        expected = _of_ants(path).sum()
        assert Volume.open(path).read().foreground.voxels == expected, path.name
