import json
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from small_head import write_head
from voxcast.apps.launch import THREAD_VARIABLES
from voxcast.apps.phase_log import read_phases
from voxcast_apps.ants_n4 import DEFAULTS, main


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    for name in THREAD_VARIABLES:  # the application sets what is not set, for its process
        monkeypatch.setenv(name, "1")


def _main(image, out, **parameters):
    arguments = ["--image", image, "--out", out, "--parameters", json.dumps(parameters)]
    return main([str(part) for part in arguments])


def test_a_real_run_writes_a_corrected_volume_and_phases(tmp_path):
    pytest.importorskip("ants")
    write_head(tmp_path / "T1w.nii.gz")
    module, out = "voxcast_apps.ants_n4", tmp_path / "out"
    command = [sys.executable, "-m", module, "--image", tmp_path / "T1w.nii.gz", "--out", out]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    names = [phase.name for phase in read_phases(completed.stdout, 0.0)]
    assert names == ["start", "load", "mask", "n4", "write"]
    assert nibabel.load(out / "corrected.nii.gz").shape == (32, 32, 32)
    result = json.loads((out / "result.json").read_text())
    assert 0 < result["bias_min"] <= result["bias_max"]
    assert result["mask_ml"] == pytest.approx(4 / 3 * np.pi * 4.8**3, rel=0.1)  # the ball's, in mL


def test_a_planted_bias_is_estimated_and_removed(tmp_path):
    pytest.importorskip("ants")
    image = tmp_path / "T1w.nii.gz"
    write_head(image)
    head = nibabel.load(image)
    bias = np.linspace(0.7, 1.4, 32, dtype=np.float32)[:, None, None]
    nibabel.save(nibabel.Nifti1Image(head.get_fdata(dtype=np.float32) * bias, head.affine), image)
    assert _main(image, tmp_path / "out", shrink_factor=2, iterations=20) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["bias_max"] / result["bias_min"] > 1.3
    corrected = nibabel.load(tmp_path / "out" / "corrected.nii.gz").get_fdata()
    left, right = corrected[5:7, 15:17, 15:17].mean(), corrected[25:27, 15:17, 15:17].mean()
    assert right / left == pytest.approx(1.0, abs=0.1)  # 1.6 before
    air = (slice(0, 2),) * 3  # outside the mask nothing is changed
    assert corrected[air] == pytest.approx(nibabel.load(image).get_fdata()[air])


def test_a_scaled_down_run_uses_and_reports_a_coarser_grid(tmp_path, capsys):
    pytest.importorskip("ants")
    write_head(tmp_path / "T1w.nii.gz")
    assert _main(tmp_path / "T1w.nii.gz", tmp_path / "out", spacing_mm=8, iterations=2) == 0
    names = [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]
    assert names == ["start", "load", "resample", "mask", "n4", "write"]
    assert nibabel.load(tmp_path / "out" / "corrected.nii.gz").shape == (16, 16, 16)


def test_bad_input_is_refused_in_one_line(tmp_path, capsys):
    pytest.importorskip("ants")
    write_head(tmp_path / "empty.nii.gz", value=0)
    for path, message in (("empty.nii.gz", "has no foreground"), ("gone.nii.gz", "no such file")):
        assert _main(tmp_path / path, tmp_path / "out") == 2
        error = capsys.readouterr().err
        assert f"{path}: {message}" in error
        assert len(error.splitlines()) == 1


def test_the_defaults_are_those_of_the_configuration() -> None:
    conf = Path(__file__).parents[3] / "conf/app/ants_n4.yaml"
    described = yaml.safe_load(conf.read_text())["ants_n4"]
    assert described["parameters"] == DEFAULTS
    assert {*described["ranges"], *described["scaled_down"]} <= set(DEFAULTS)
