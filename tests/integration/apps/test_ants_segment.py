import json
import subprocess
import sys

import nibabel
import numpy as np
import pytest

from small_head import write_head
from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.phase_log import read_phases
from voxcast_apps.ants_segment import main


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


def test_a_scaled_down_run_uses_and_reports_a_coarser_grid(tmp_path, capsys, monkeypatch):
    pytest.importorskip("ants")
    for name in THREAD_VARIABLES:  # the application sets what is not set, for its process
        monkeypatch.setenv(name, "1")
    write_head(tmp_path / "T1w.nii.gz")
    scaled = json.dumps({"spacing_mm": 6.4, "n4_iterations": 2, "atropos_iterations": 2})
    arguments = [
        "--image",
        tmp_path / "T1w.nii.gz",
        "--out",
        tmp_path / "out",
        "--parameters",
        scaled,
    ]
    assert main([str(part) for part in arguments]) == 0
    names = [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]
    assert names == ["start", "load", "resample", "mask", "n4", "atropos", "write"]
    labels = nibabel.load(tmp_path / "out" / "labels.nii.gz")
    assert labels.shape == (20, 20, 20)
    assert labels.header.get_zooms() == pytest.approx((6.4, 6.4, 6.4))
