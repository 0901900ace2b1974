import json
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import yaml

from voxcast.apps.builtin.ants_segment import DEFAULTS
from voxcast.apps.phase_log import read_phases


def _head(path, value=None):
    """A ball of two shells in air, 4 mm voxels."""
    grid = np.stack(np.meshgrid(*[np.arange(32.0)] * 3, indexing="ij"))
    radius = np.sqrt(((grid - 15.5) ** 2).sum(axis=0))
    noise = np.random.default_rng(3).normal(0, 10, radius.shape)
    voxels = np.select([radius < 6, radius < 9, radius < 12], [300, 600, 900], 0) + noise
    if value is not None:
        voxels = np.full(radius.shape, value)
    image = nibabel.Nifti1Image(voxels.astype(np.float32), np.diag([4.0, 4.0, 4.0, 1.0]))
    nibabel.save(image, path)


def _run(image, out):
    module = "voxcast.apps.builtin.ants_segment"
    command = [sys.executable, "-m", module, "--image", str(image), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_real_run_writes_labels_volumes_and_phases(tmp_path):
    pytest.importorskip("ants")
    _head(tmp_path / "T1w.nii.gz")
    done = _run(tmp_path / "T1w.nii.gz", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    names = [phase.name for phase in read_phases(done.stdout, 0.0)]
    assert names == ["start", "load", "mask", "n4", "atropos", "write"]
    labels = np.asarray(nibabel.load(tmp_path / "out" / "labels.nii.gz").dataobj)
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    volumes = json.loads((tmp_path / "out" / "volumes.json").read_text())
    counted = {str(n): (labels == n).sum() * 0.064 for n in (1, 2, 3)}
    assert volumes["classes_ml"] == pytest.approx(counted)
    assert sum(counted.values()) == pytest.approx(volumes["mask_ml"])


def test_a_volume_without_foreground_is_refused_in_one_line(tmp_path):
    pytest.importorskip("ants")
    _head(tmp_path / "empty.nii.gz", value=0)
    done = _run(tmp_path / "empty.nii.gz", tmp_path / "out")
    assert done.returncode == 2
    assert "empty.nii.gz: has no foreground to segment" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_defaults_are_those_of_the_configuration() -> None:
    conf = Path(__file__).parents[2] / "conf/app/ants_segment.yaml"
    assert yaml.safe_load(conf.read_text())["ants_segment"]["parameters"] == DEFAULTS
