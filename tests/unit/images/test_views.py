"""What is seen of a volume: three slices, and the network's small volume."""

import base64
import io
import itertools
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from voxcast.errors import ImageError
from voxcast.images.network_volume import (
    STEPS,
    network_from_bytes,
    network_to_bytes,
    network_volume,
    points_of,
    volume_dtype,
)
from voxcast.images.slices import MAX_PIXELS, Slice, middle_slices
from voxcast.images.volume import Volume

MAX_VOXELS = 10**8
SPACING_MM = np.array([1.0, 2.0, 3.0])  # of right, anterior, superior


def views_of(path: Path) -> dict[str, Slice]:
    return {view.plane: view for view in middle_slices(Volume.open(path), MAX_VOXELS)}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("flips", [(1, 1, 1), (-1, 1, 1), (1, -1, -1), (-1, -1, -1)])
def test_right_is_right_and_superior_is_up_in_any_orientation(
    order: tuple[int, ...], flips: tuple[int, ...], tmp_path: Path
) -> None:
    voxels = np.zeros((9, 11, 13), np.int16)  # right, anterior, superior
    voxels[-2, 5, 6], voxels[4, -2, 6], voxels[4, 5, -2] = 100, 200, 300
    image = nibabel.Nifti1Image(voxels, np.diag([*SPACING_MM, 1.0]))
    codes = nibabel.orientations.axcodes2ornt("RAS")
    codes[:, 0], codes[:, 1] = order, flips
    turned = image.as_reoriented(codes)
    turned.set_sform(turned.affine, 1)
    nibabel.save(turned, tmp_path / "image.nii.gz")
    views = views_of(tmp_path / "image.nii.gz")

    def brightest(plane: str) -> set[tuple[int, int]]:
        return {(int(r), int(c)) for r, c in np.argwhere(views[plane].pixels > 0)}

    # Rows from the top. Right is on the right of the coronal and the axial view; in the axial one
    # anterior is on top, in the sagittal one on the right.
    assert brightest("coronal") == {(6, 7), (1, 4)}
    assert brightest("axial") == {(5, 7), (1, 4)}
    assert brightest("sagittal") == {(6, 9), (1, 5)}
    assert views["sagittal"].spacing_mm == (2.0, 3.0)
    assert views["coronal"].spacing_mm == (1.0, 3.0)
    assert views["axial"].spacing_mm == (1.0, 2.0)


def test_large_slices_are_thinned_out_and_keep_their_aspect(tmp_path: Path) -> None:
    voxels = np.random.default_rng(0).integers(0, 100, (600, 30, 20)).astype(np.uint8)
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([0.5, 1, 1, 1])), tmp_path / "image.nii")
    view = views_of(tmp_path / "image.nii")["coronal"]
    height, width = view.pixels.shape
    assert width <= MAX_PIXELS
    assert width * view.spacing_mm[0] == pytest.approx(600 * 0.5)
    assert height * view.spacing_mm[1] == 20


def test_values_without_a_number_are_black_and_few_bright_ones_do_not_darken(
    tmp_path: Path,
) -> None:
    voxels = np.random.default_rng(0).uniform(100, 200, (20, 20, 20)).astype(np.float32)
    voxels[10, 10, 10], voxels[10, 10, 11], voxels[10, 10, 12] = 1e9, np.nan, np.inf
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "image.nii")
    for view in views_of(tmp_path / "image.nii").values():
        assert 100 < np.median(view.pixels) < 155


def test_a_picture_is_png(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 12)).astype(np.uint8)
    answer = Slice("axial", pixels, (1.0, 2.0)).as_json()
    assert (answer["width"], answer["height"], answer["spacing_mm"]) == (12, 7, (1.0, 2.0))
    picture = Image.open(io.BytesIO(base64.b64decode(answer["png"])))
    assert (picture.format, picture.mode) == ("PNG", "L")
    assert np.array_equal(np.asarray(picture), pixels)


AFFINE = np.diag([-2.0, 2.0, 3.0, 1.0])
SHAPE = (90, 70, 50)


def _saved_ellipsoid(path: Path) -> Path:
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"))
    noise = np.random.default_rng(3).normal(0, 20, SHAPE)
    array = (1000 * ((grid**2).sum(0) < 0.6) * (1 + grid[0]) + noise).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(array, AFFINE), path)
    return path


def test_the_input_of_the_network_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    volume = network_volume(Volume.open(_saved_ellipsoid(tmp_path / "a.nii.gz")).read(), 16)
    back = network_from_bytes(network_to_bytes(volume), 16)
    assert back.dtype == volume.dtype == volume_dtype(16)
    assert back.tobytes() == volume.tobytes()
    assert points_of(back) == 16


def _packed(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def _changed(field: str, value: float) -> np.ndarray:
    volume = np.ones((), volume_dtype(8))
    volume[field].flat[0] = value
    return volume


GOOD = network_to_bytes(np.ones((), volume_dtype(8)))


@pytest.mark.parametrize(
    ("data", "points", "reason"),
    [
        (_packed(np.ones((4, 4), np.float16)[0, 0]), 8, "is not a cube of 8 points"),
        (GOOD, 9, "a cube of 9 points"),
        (_packed(np.ones(2, volume_dtype(8))), 8, "not a .npy array of one"),
        (_packed(np.full((8, 8, 8), None, object)), 8, "not a .npy"),
        (b"PK\x03\x04 something else", 8, "of one small volume"),
        (b"", 8, "of one small volume"),
        (GOOD[:-2], 8, "cut short"),
        (_packed(_changed("spacing_mm", np.nan)), 8, "a shape or spacing that is none"),
        (_packed(_changed("maps", STEPS + 1)), 8, "cells out of range"),
        # A header that promises more than is there must not reserve it.
        (GOOD.replace(b"(3, 8, 8, 8)", b"(3, 9, 9, 9)"), 9, "cut short"),
    ],
)
def test_bytes_that_are_refused(data: bytes, points: int, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        network_from_bytes(data, points)


def test_network_sees_canonical_axes(tmp_path: Path) -> None:
    array = nibabel.load(_saved_ellipsoid(tmp_path / "c.nii")).get_fdata(dtype=np.float32)
    canonical = nibabel.Nifti1Image(array, np.diag([2.0, 2.0, 3.0, 1.0]))
    turned = canonical.as_reoriented(nibabel.orientations.axcodes2ornt(("P", "S", "L")))
    nibabel.save(canonical, tmp_path / "a.nii")
    nibabel.save(turned, tmp_path / "b.nii")
    assert Volume.open(tmp_path / "b.nii").header.axcodes != "RAS"
    a, b = (network_volume(Volume.open(tmp_path / f"{name}.nii").read(90), 24) for name in "ab")
    assert a["maps"].shape == (3, 24, 24, 24)
    for volume in (a, b):
        assert volume["shape"].tolist() == list(SHAPE)
        assert volume["spacing_mm"].tolist() == [2.0, 2.0, 3.0]
    assert np.abs(a["maps"].astype(int) - b["maps"]).max() <= 1
    assert a["maps"][0].max() == STEPS
