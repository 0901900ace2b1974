"""Segmentation and registration by ANTs, of small heads whose truth is known."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from small_head import write_head
from voxcast.apps.phase_log import read_phases
from voxcast.errors import ImageError

pytest.importorskip("ants")
from voxcast_apps import ants_register, ants_segment
from voxcast_apps.ants_volume import coarsened, read_volume, volumes_ml

CONF = Path(__file__).parents[3] / "conf/app/ants_register.yaml"
SCALE = 0.93


def _phases(main, image, out, capsys, **parameters):
    arguments = ["--image", image, "--out", out, "--parameters", json.dumps(parameters)]
    assert main([str(part) for part in arguments]) == 0
    return [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]


def _array(path):
    return np.asarray(nibabel.load(path).dataobj)


def test_a_segmentation_writes_labels_volumes_and_phases(tmp_path, capsys):
    write_head(tmp_path / "T1w.nii.gz")
    names = _phases(ants_segment.main, tmp_path / "T1w.nii.gz", tmp_path, capsys)
    assert names == ["start", "load", "mask", "n4", "atropos", "write"]
    counts = np.bincount(_array(tmp_path / "labels.nii.gz").astype(int).ravel())
    assert (counts > 0).tolist() == [True] * 4
    volumes = json.loads((tmp_path / "volumes.json").read_text())
    classes_ml = {str(n): counts[n] * 0.064 for n in (1, 2, 3)}
    assert volumes["classes_ml"] == pytest.approx(classes_ml)
    assert sum(classes_ml.values()) == pytest.approx(volumes["mask_ml"])


def _moved_brain(path):
    """Write the template, nodding, smaller and far from its place; return where the brain is."""
    datasets = pytest.importorskip("nilearn.datasets")
    template = datasets.load_mni152_template(resolution=3)
    turn = np.deg2rad(11)
    nod = np.array([[1, 0, 0], [0, np.cos(turn), -np.sin(turn)], [0, np.sin(turn), np.cos(turn)]])
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = SCALE * nod, (40, -25, 60)
    voxels = (1000 * template.get_fdata()).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(voxels, pose @ template.affine), path)
    return voxels > 50


def test_a_scaled_down_run_registers_a_moved_brain(tmp_path, capsys):
    brain = _moved_brain(tmp_path / "T1w.nii.gz")
    out, conf = tmp_path / "out", yaml.safe_load(CONF.read_text())["ants_register"]
    parameters = {**conf["scaled_down"], "spacing_mm": 0.0}
    names = _phases(ants_register.main, tmp_path / "T1w.nii.gz", out, capsys, **parameters)
    assert names == ["start", "load", "pose", "affine", "syn", "apply", "write"]
    result = json.loads((out / "result.json").read_text())
    assert result["correlation"] > 0.85  # a wrong place has below 0.4
    assert result["affine_determinant"] == pytest.approx(SCALE**3, rel=0.05)
    assert 0 < result["jacobian_1_percent"] < 1 < result["jacobian_99_percent"] < 2
    mask = _array(out / "brain_mask.nii.gz") > 0
    assert mask.shape == brain.shape  # the image's own grid
    assert 2 * (mask & brain).sum() / (mask.sum() + brain.sum()) > 0.95
    warped = nibabel.load(out / "warped.nii.gz")
    assert warped.header.get_zooms() == pytest.approx((4.0, 4.0, 4.0))  # the template's grid
    written = {"brain_mask.nii.gz", "result.json", "warped.nii.gz"}
    assert {path.name for path in out.iterdir()} == written  # and no transforms left behind


@pytest.mark.parametrize(
    ("app", "name", "parameters", "message"),
    [
        (ants_segment, "empty.nii.gz", {}, "empty.nii.gz: has no foreground"),
        (ants_register, "empty.nii.gz", {"template_mm": 4}, "empty.nii.gz: has no foreground"),
        (ants_register, "gone.nii.gz", {}, "gone.nii.gz: no such file"),
        (ants_register, "gone.nii.gz", {"template_mm": 9}, "template_mm: needs 1 to 4"),
    ],
)
def test_bad_input_is_refused_in_one_line(app, name, parameters, message, tmp_path, refused):
    write_head(tmp_path / "empty.nii.gz", value=0)
    assert message in refused(app.main, tmp_path / name, **parameters)


def test_only_the_fine_axes_are_resampled_and_the_volume_stays(tmp_path):
    voxels = np.zeros((40, 40, 16), np.float32)
    voxels[8:32, 8:32, 4:12] = 1.0
    path = tmp_path / "thick.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 5.0, 1.0])), path)
    volume = read_volume(path)
    coarse = coarsened(volume, 4.0)
    assert coarse.shape == (20, 20, 16)
    assert coarse.spacing == pytest.approx((4.0, 4.0, 5.0))
    rounded = coarse.new_image_like(coarse.numpy().round())
    assert volumes_ml(rounded, 2) == pytest.approx(volumes_ml(volume, 2), rel=0.05)


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone.nii.gz", "no such file"), ("notes.nii.gz", "ANTs cannot read it"),
     ("bold.nii.gz", "is not one 3-D volume")],
)  # fmt: skip
def test_a_file_that_is_not_a_volume_is_refused(tmp_path, name, message):
    (tmp_path / "notes.nii.gz").write_text("no image")
    series = nibabel.Nifti1Image(np.zeros((4, 4, 4, 3), np.float32), np.eye(4))
    nibabel.save(series, tmp_path / "bold.nii.gz")
    with pytest.raises(ImageError, match=message):
        read_volume(tmp_path / name)
