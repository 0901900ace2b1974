"""Applications run in this process: small inputs whose truth is known, and bad ones."""

import json
import subprocess
import sys
import time

import nibabel
import numpy as np
import pytest

from voxcast.apps.phase_log import read_phases
from voxcast_apps import dnn_train
from voxcast_apps.arguments import NO_IMAGE, Arguments
from voxcast_apps.dnn_train import DEFAULTS, train
from voxcast_apps.heads.grids import Sizes
from voxcast_apps.heads.rendering import write_labelled_heads
from voxcast_apps.tiles.grid import TISSUES
from voxcast_apps.tiles.tile_segment import main

TINY = {
    **DEFAULTS, "dataset": "synthetic", "samples": 65, "epochs": 2, "batch_size": 32,
    "neurons": 16, "width": 2,
}  # fmt: skip


def _trained(out, device, parameters):
    train(Arguments(NO_IMAGE, out, 1, device, parameters))
    return json.loads((out / "result.json").read_text())


def test_a_run_learns_and_writes_its_times_and_phases(tmp_path, capsys):
    parameters = {**DEFAULTS, "samples": 600, "epochs": 3, "image_size": 8, "neurons": 64}
    result = _trained(tmp_path, "cpu", parameters)
    phases = read_phases(capsys.readouterr().out, 0.0)
    expected = ["start", "import", "data", "build", *["epoch"] * 3, "evaluate", "write"]
    assert [phase.name for phase in phases] == expected
    in_log = [phase.duration_s for phase in phases if phase.name == "epoch"]
    assert result["epoch_s"] == pytest.approx(in_log, rel=0.05, abs=0.05)
    start_up_s = phases[4].start_s - phases[0].start_s
    assert result["startup_s"] == pytest.approx(start_up_s, rel=0.05, abs=0.05)
    assert result["loss_last"] < result["loss_first"]
    assert result["accuracy"] > 0.6  # a tenth by chance
    assert result["weights"] == 64 * 64 + 64 + 2 * (64 * 64 + 64) + 64 * 10 + 10
    assert (result["threads"], result["peak_cuda_reserved_bytes"]) == (1, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "alexnet"}, "choose from fully_connected, resnet50, vgg16"),
        ({"dataset": "mnist"}, "choose from digits, synthetic"),
        ({"network": "vgg16", "image_size": 24}, "image_size: must be at least 32, not 24"),
        ({"network": "resnet50", "batch_size": 1}, "batch_size: must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate: must be at least 1e-09"),
        ({"epochs": 0}, "epochs: must be at least 1"),
    ],
)
def test_an_invalid_parameter_is_refused(wrong, message, refused):
    assert message in refused(dnn_train.main, **wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["fully_connected", "vgg16", "resnet50"])
def test_a_gpu_is_used_and_its_memory_reported(tmp_path, network):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    result = _trained(tmp_path, "gpu", {**TINY, "network": network})
    assert result["gpu_model"]
    weights_bytes = 4 * result["weights"]
    assert weights_bytes < result["peak_cuda_allocated_bytes"]
    assert result["peak_cuda_allocated_bytes"] <= result["peak_cuda_reserved_bytes"]


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


SCRIPT = """
import sys, time
from voxcast.apps.phase_log import phase, started
started()
with phase("spin"):
    while time.process_time() < 0.3: pass
sys.stdout.write("no newline here")
try:
    with phase("broken"):
        raise ValueError
except ValueError:
    pass
"""


def test_phases_of_a_real_process_are_in_order_and_on_the_runners_clock():
    started = time.monotonic()
    completed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    runtime_s = time.monotonic() - started
    phases = read_phases(completed.stdout.decode(), started)
    assert [phase.name for phase in phases] == ["start", "spin", "broken"]
    edges = [edge for phase in phases for edge in (phase.start_s, phase.end_s)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= runtime_s
    assert abs(sum(phase.cpu_s for phase in phases) - 0.3) < 0.1


def test_truncated_foreign_and_impossible_lines_are_ignored():
    good = 'voxcast-phase {"name": "n4", "start": 11.0, "end": 12.5, "cpu_s": 1.25}'
    lines = [
        "N4 converged",
        good[:40],
        'voxcast-phase {"name": "n4", "start": 11.0, "end": NaN, "cpu_s": 1}',
        'voxcast-phase {"name": "n4", "start": 12.0, "end": 11.0, "cpu_s": 1}',
        'voxcast-phase ["n4"]',
        "iteration 3 of 50 " + good + " iteration 4",
    ]
    (phase,) = read_phases(lines, 10.0)
    assert (phase.name, phase.start_s, phase.end_s, phase.cpu_s) == ("n4", 1.0, 2.5, 1.25)
    assert read_phases("", 0.0) == ()
