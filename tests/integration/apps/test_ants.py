import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from small_head import write_head
from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.phase_log import read_phases
from voxcast.errors import ImageError

pytest.importorskip("ants")
from voxcast_apps import ants_register, ants_segment
from voxcast_apps.ants_volume import coarsened, read_volume, volumes_ml

CONF = Path(__file__).parents[3] / "conf/app/ants_register.yaml"
SCALE = 0.93


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    for name in THREAD_VARIABLES:  # the application sets what is not set, for its process
        monkeypatch.setenv(name, "1")


def _described():
    return yaml.safe_load(CONF.read_text())["ants_register"]


def _main(app, image, out, **parameters):
    arguments = ["--image", image, "--out", out, "--parameters", json.dumps(parameters)]
    return app.main([str(part) for part in arguments])


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
    out = tmp_path / "out"
    parameters = {**_described()["scaled_down"], "spacing_mm": 0.0}
    assert _main(ants_register, tmp_path / "T1w.nii.gz", out, **parameters) == 0
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


@pytest.mark.parametrize(
    ("app", "path", "parameters", "message"),
    [
        (ants_register, "empty.nii.gz", {"template_mm": 4}, "empty.nii.gz: has no foreground"),
        (ants_register, "gone.nii.gz", {}, "gone.nii.gz: no such file"),
        (ants_register, "gone.nii.gz", {"template_mm": 9}, "template_mm: needs 1 to 4"),
        (ants_segment, "empty.nii.gz", {}, "empty.nii.gz: has no foreground"),
    ],
)
def test_bad_input_is_refused_in_one_line(tmp_path, capsys, app, path, parameters, message):
    write_head(tmp_path / "empty.nii.gz", value=0)
    assert _main(app, tmp_path / path, tmp_path / "out", **parameters) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_run_writes_labels_volumes_and_phases(tmp_path, capsys):
    write_head(tmp_path / "T1w.nii.gz")
    assert _main(ants_segment, tmp_path / "T1w.nii.gz", tmp_path / "out") == 0
    names = [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]
    assert names == ["start", "load", "mask", "n4", "atropos", "write"]
    labels = np.asarray(nibabel.load(tmp_path / "out" / "labels.nii.gz").dataobj)
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    volumes = json.loads((tmp_path / "out" / "volumes.json").read_text())
    counted = {str(n): (labels == n).sum() * 0.064 for n in (1, 2, 3)}
    assert volumes["classes_ml"] == pytest.approx(counted)
    assert sum(counted.values()) == pytest.approx(volumes["mask_ml"])


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
