"""One generated head through the whole application."""

import json

import nibabel
import numpy as np
import pytest

from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.rendering import write_labelled_heads
from voxcast_apps.tiles.grid import TISSUES
from voxcast_apps.tiles.tile_segment import main

pytest.importorskip("ants")
SIZES = Sizes(voxels=(150_000, 200_000), axis_voxels=(32, 160))
QUICK = {"n4_iterations": 5, "affine_iterations": 0.5, "tiles_per_axis": 2}


def test_an_unseen_head_is_segmented_on_its_own_grid(tmp_path):
    from voxcast_apps.tiles.training import dice

    ((image, truth),) = write_labelled_heads(tmp_path, seed=8, subjects=1, sizes=SIZES)
    out = tmp_path / "out"
    arguments = ["--image", str(image), "--out", str(out), "--parameters", json.dumps(QUICK)]
    assert main(arguments) == 0
    scan, labels = nibabel.load(image), nibabel.load(out / "labels.nii.gz")
    assert labels.shape == scan.shape
    np.testing.assert_allclose(labels.affine, scan.affine, atol=1e-3)
    found = np.asarray(labels.dataobj)
    counts = np.bincount(found.astype(int).ravel(), minlength=4)
    volumes = json.loads((out / "volumes.json").read_text())
    voxel_ml = abs(np.linalg.det(scan.affine)) / 1000
    for name, count in zip(TISSUES, counts, strict=True):
        assert volumes[f"{name}_ml"] == pytest.approx(count * voxel_ml, rel=1e-4)
    _, grey, white = dice(found, np.asarray(nibabel.load(truth).dataobj))
    assert min(grey, white) > 0.8


@pytest.mark.parametrize(
    ("voxels", "parameters", "message"),
    [
        (np.zeros((20, 20, 20)), {}, "has no foreground"),
        (np.zeros((20, 20, 20, 2)), {}, "is not one 3-D volume"),
        (np.zeros((4, 4, 4)), {"n4_iterations": 0}, "n4_iterations: needs 1 to"),
        (np.zeros((4, 4, 4)), {"tiles_per_axis": 1}, "needs 2 to 5, not 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(voxels, parameters, message, tmp_path, refused):
    image = tmp_path / "T1w.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels.astype(np.float32), np.eye(4)), image)
    assert message in refused(main, image, **parameters)
