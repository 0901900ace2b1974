"""Headers, and every fault that can be seen without reading a voxel."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import nibabel
import numpy as np
import pytest

from voxcast.errors import ImageError
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
