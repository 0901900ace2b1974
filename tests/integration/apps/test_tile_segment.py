"""One generated head through the whole application, in a process of its own."""

import json
import subprocess
import sys

import nibabel
import numpy as np
import pytest

from voxcast.apps.app import THREAD_VARIABLES
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.rendering import write_labelled_heads
from voxcast_apps.tiles import tile_segment
from voxcast_apps.tiles.grid import TISSUES

pytest.importorskip("ants")
SIZES = Sizes(voxels=(200_000, 300_000, 500_000), axis_voxels=(32, 160))


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    (pair,) = write_labelled_heads(
        tmp_path_factory.mktemp("head"), seed=8, subjects=1, sizes=SIZES
    )
    return pair


@pytest.fixture(scope="module")
def run(head, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    module = "voxcast_apps.tiles.tile_segment"
    command = [sys.executable, "-P", "-m", module, "--image", str(head[0]), "--out", str(out)]
    fewer = json.dumps({"tiles_per_axis": 2, "n4_iterations": 10})
    command += ["--parameters", fewer, "--threads", "2"]
    return out, subprocess.run(command, capture_output=True, text=True, check=False)


def _array(path):
    return np.asarray(nibabel.load(path).dataobj)


def test_labels_lie_on_the_grid_of_the_scan_and_add_up(run, head):
    out, _ = run
    scan, labels = nibabel.load(head[0]), nibabel.load(out / "labels.nii.gz")
    assert labels.shape == scan.shape
    np.testing.assert_allclose(labels.affine, scan.affine, atol=1e-3)
    counts = np.bincount(_array(out / "labels.nii.gz").ravel(), minlength=4)
    volumes = json.loads((out / "volumes.json").read_text())
    voxel_ml = abs(np.linalg.det(scan.affine)) / 1000
    for name, count in zip(TISSUES, counts, strict=True):
        assert volumes[f"{name}_ml"] == pytest.approx(count * voxel_ml, rel=1e-4)


def test_grey_and_white_matter_of_an_unseen_head_are_segmented(run, head):
    from voxcast_apps.tiles.training import dice

    _, grey, white = dice(_array(run[0] / "labels.nii.gz"), _array(head[1]))
    assert grey > 0.8
    assert white > 0.8


@pytest.mark.parametrize(
    ("voxels", "parameters", "message"),
    [
        (np.zeros((20, 20, 20)), {}, "has no foreground"),
        (np.zeros((20, 20, 20, 2)), {}, "is not one 3-D volume"),
        (None, {}, "no such file"),
        (np.zeros((4, 4, 4)), {"n4_iterations": 0}, "n4_iterations: needs 1 to"),
        (np.zeros((4, 4, 4)), {"tiles_per_axis": 1}, "needs 2 to 5, not 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    voxels, parameters, message, tmp_path, monkeypatch, capsys
):
    for name in THREAD_VARIABLES:  # which the application would otherwise set for all of us
        monkeypatch.setenv(name, "1")
    image = tmp_path / "T1w.nii.gz"
    if voxels is not None:
        nibabel.save(nibabel.Nifti1Image(voxels.astype(np.float32), np.eye(4)), image)
    arguments = ["--image", str(image), "--out", str(tmp_path / "out")]
    assert tile_segment.main([*arguments, "--parameters", json.dumps(parameters)]) == 2
    errors = capsys.readouterr().err.strip()
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "out").exists()
