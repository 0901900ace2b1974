import json
import subprocess
import sys

import nibabel
import numpy as np
import pytest

from small_head import write_head
from voxcast.apps.phase_log import read_phases


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
