import json
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from small_head import write_head
from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.phase_log import read_phases
from voxcast.errors import ImageError
from voxcast_apps.ants_register import main
from voxcast_apps.ants_volume import coarsened, read_volume, volumes_ml

CONF = Path(__file__).parents[3] / "conf/app/ants_register.yaml"
SCALE = 0.93


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    for name in THREAD_VARIABLES:  # the application sets what is not set, for its process
        monkeypatch.setenv(name, "1")


def _described():
    return yaml.safe_load(CONF.read_text())["ants_register"]


def _main(image, out, **parameters):
    arguments = ["--image", image, "--out", out, "--parameters", json.dumps(parameters)]
    return main([str(part) for part in arguments])


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
    pytest.importorskip("ants")
    brain = _moved_brain(tmp_path / "T1w.nii.gz")
    out = tmp_path / "out"
    parameters = {**_described()["scaled_down"], "spacing_mm": 0.0}
    assert _main(tmp_path / "T1w.nii.gz", out, **parameters) == 0
    names = [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]
    assert names == ["start", "load", "pose", "affine", "syn", "apply", "write"]
    result = json.loads((out / "result.json").read_text())
    assert result["correlation"] > 0.85  # a wrong place has below 0.4
    assert result["affine_determinant"] == pytest.approx(SCALE**3, rel=0.05)
    assert 0 < result["jacobian_1_percent"] < 1 < result["jacobian_99_percent"] < 2
    mask = np.asarray(nibabel.load(out / "brain_mask.nii.gz").dataobj) > 0
    assert mask.shape == brain.shape  # the image's own grid
    assert 2 * (mask & brain).sum() / (mask.sum() + brain.sum()) > 0.95
    warped = nibabel.load(out / "warped.nii.gz")
    assert warped.header.get_zooms() == pytest.approx((4.0, 4.0, 4.0))  # the template's grid
    written = {"brain_mask.nii.gz", "result.json", "warped.nii.gz"}
    assert {path.name for path in out.iterdir()} == written  # and no transforms left behind


def test_bad_input_is_refused_in_one_line(tmp_path, capsys):
    pytest.importorskip("ants")
    write_head(tmp_path / "empty.nii.gz", value=0)
    for path, parameters, message in (
        ("empty.nii.gz", {"template_mm": 4}, "empty.nii.gz: has no foreground"),
        ("gone.nii.gz", {}, "gone.nii.gz: no such file"),
        ("gone.nii.gz", {"template_mm": 9}, "template_mm: needs 1 to 4"),
    ):
        assert _main(tmp_path / path, tmp_path / "out", **parameters) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1


def _run(image, out):
    module = "voxcast_apps.ants_segment"
    command = [sys.executable, "-m", module, "--image", str(image), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_real_run_writes_labels_volumes_and_phases(tmp_path):
    pytest.importorskip("ants")
    write_head(tmp_path / "T1w.nii.gz")
    completed = _run(tmp_path / "T1w.nii.gz", tmp_path / "out")
    assert completed.returncode == 0, completed.stderr
    names = [phase.name for phase in read_phases(completed.stdout, 0.0)]
    assert names == ["start", "load", "mask", "n4", "atropos", "write"]
    labels = np.asarray(nibabel.load(tmp_path / "out" / "labels.nii.gz").dataobj)
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    volumes = json.loads((tmp_path / "out" / "volumes.json").read_text())
    counted = {str(n): (labels == n).sum() * 0.064 for n in (1, 2, 3)}
    assert volumes["classes_ml"] == pytest.approx(counted)
    assert sum(counted.values()) == pytest.approx(volumes["mask_ml"])


def test_a_volume_without_foreground_is_refused_in_one_line(tmp_path):
    pytest.importorskip("ants")
    write_head(tmp_path / "empty.nii.gz", value=0)
    completed = _run(tmp_path / "empty.nii.gz", tmp_path / "out")
    assert completed.returncode == 2
    assert "empty.nii.gz: has no foreground" in completed.stderr
    assert len(completed.stderr.splitlines()) == 1


pytest.importorskip("ants")


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


def test_a_file_that_is_not_a_volume_is_refused(tmp_path):
    text, series = tmp_path / "notes.nii.gz", tmp_path / "bold.nii.gz"
    text.write_text("no image")
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 4, 3), np.float32), np.eye(4)), series)
    for path, message in (
        (tmp_path / "gone.nii.gz", "no such file"),
        (text, "ANTs cannot read it"),
        (series, "is not one 3-D volume"),
    ):
        with pytest.raises(ImageError, match=message):
            read_volume(path)
