import json

import pytest

from voxcast.apps.app import THREAD_VARIABLES
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


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    for name in THREAD_VARIABLES:  # the application sets what is not set, for its process
        monkeypatch.setenv(name, "1")


def test_a_run_writes_its_times_and_phases(tmp_path, capsys):
    parameters = json.dumps({"samples": 600, "epochs": 3, "image_size": 8, "neurons": 64})
    assert main(["--out", str(tmp_path / "out"), "--parameters", parameters]) == 0
    phases = read_phases(capsys.readouterr().out, 0.0)
    expected = ["start", "import", "data", "build", *["epoch"] * 3, "evaluate", "write"]
    assert [phase.name for phase in phases] == expected
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(result["epoch_s"]) == 3
    assert min(*result["epoch_s"], result["startup_s"]) > 0
    assert result["loss_last"] < result["loss_first"]
    assert result["accuracy"] > 0.6  # a tenth by chance
    assert result["weights"] == 64 * 64 + 64 + 2 * (64 * 64 + 64) + 64 * 10 + 10
    assert result["threads"] == 1
    assert result["peak_cuda_reserved_bytes"] is None


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
def test_an_invalid_parameter_is_refused(tmp_path, wrong, message, capsys):
    assert main(["--out", str(tmp_path / "out"), "--parameters", json.dumps(wrong)]) == 2
    assert message in capsys.readouterr().err


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
