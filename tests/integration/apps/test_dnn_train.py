import json

import pytest

from voxcast.apps.phase_log import read_phases
from voxcast_apps.arguments import NO_IMAGE, Arguments
from voxcast_apps.dnn_train import DEFAULTS, main, train

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
    assert message in refused(main, **wrong)


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
