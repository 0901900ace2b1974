"""Three views of a volume, and the pictures that they are sent as."""

import base64
import io
import itertools
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

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
