import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from small_head import write_head
from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.phase_log import read_phases
from voxcast_apps.ants_register import main

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
