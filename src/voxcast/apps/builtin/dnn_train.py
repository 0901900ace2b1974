"""Training of a deep network, the use case of HARP, as a built-in application.

Run as ``python -m voxcast.apps.builtin.dnn_train --out DIR``. Its ``result.json`` holds the time
before the first epoch and that of each epoch, from which the time of a longer run follows.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from voxcast.apps.builtin.arguments import parse
from voxcast.apps.phase_log import phase, process_start, started
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULTS: dict[str, Any] = {
    "network": "fully_connected",
    "dataset": "digits",
    "samples": 3000,
    "image_size": 32,
    "batch_size": 64,
    "epochs": 4,
    "layers": 3,
    "neurons": 512,
    "width": 12,
    "optimiser": "adam",
    "learning_rate": 1e-3,
    "seed": 1,
}
OPTIMISERS = ("sgd", "adam")
MOMENTUM = 0.9  # of sgd
RESULT_FILE = "result.json"


def train(out: Path, device: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Train a network, evaluate it on held-out images, and log each step as a phase.

    Every epoch is a phase ``epoch``; its time is also in the result.

    Parameters
    ----------
    out : Path
        Folder for ``result.json``; created if missing.
    device : str
        ``cpu`` or ``gpu``.
    parameters : mapping
        As `DEFAULTS`.

    Returns
    -------
    dict
        The content of ``result.json``. `peak_cuda_*` is the memory of torch's tensors without
        that of the driver; None on a CPU.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    RunError
        If a GPU is requested and there is none, or scikit-learn's digits are missing.
    """
    started()
    with phase("import"):
        import torch

        from voxcast.apps.builtin import dnn_data, dnn_nets
        from voxcast.apps.builtin.torch_device import torch_device
    _check(parameters, dnn_nets.NETWORKS, dnn_data.DATASETS, dnn_nets.VGG16_POOLINGS)
    compute_device = torch_device(device)
    with phase("data"):
        names = ("dataset", "samples", "image_size", "seed")
        training, held_out = dnn_data.load(*(parameters[name] for name in names))
    with phase("build"):
        torch.manual_seed(parameters["seed"])
        sizes = {name: parameters[name] for name in ("image_size", "layers", "neurons", "width")}
        network = dnn_nets.build(parameters["network"], **sizes).to(compute_device)
        optimiser = _optimiser(network, parameters)
    startup_s = time.monotonic() - process_start()
    epoch_s, losses = [], []
    for _ in range(parameters["epochs"]):
        epoch_start = time.monotonic()
        with phase("epoch"):
            losses.append(
                _epoch(network, optimiser, training, parameters["batch_size"], compute_device)
            )
        epoch_s.append(time.monotonic() - epoch_start)
    with phase("evaluate"):
        accuracy = _accuracy(network, held_out, parameters["batch_size"], compute_device)
    with phase("write"):
        on_gpu = device == "gpu"
        result = {
            "startup_s": startup_s,
            "epoch_s": epoch_s,
            "loss_first": losses[0] if math.isfinite(losses[0]) else None,
            "loss_last": losses[-1] if math.isfinite(losses[-1]) else None,
            "accuracy": accuracy,
            "weights": sum(weight.numel() for weight in network.parameters()),
            "threads": torch.get_num_threads(),
            "gpu_model": torch.cuda.get_device_name() if on_gpu else None,
            "peak_cuda_allocated_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
            "peak_cuda_reserved_bytes": torch.cuda.max_memory_reserved() if on_gpu else None,
        }
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RESULT_FILE, result)
    return result


def _optimiser(network: Any, parameters: Mapping[str, Any]) -> Any:
    import torch

    if parameters["optimiser"] == "sgd":
        rate = parameters["learning_rate"]
        return torch.optim.SGD(network.parameters(), lr=rate, momentum=MOMENTUM)
    return torch.optim.Adam(network.parameters(), lr=parameters["learning_rate"])


def _epoch(
    network: Any, optimiser: Any, images: Any, batch_size: int, compute_device: Any
) -> float:
    """Go once over the images in a new order and return the mean loss."""
    import torch

    network.train()
    total, seen = torch.zeros((), device=compute_device), 0
    for rows in torch.randperm(len(images.classes)).split(batch_size):
        if len(rows) == 1 and batch_size > 1:
            continue  # batch normalisation needs at least two
        pixels = torch.from_numpy(images.pixels)[rows].to(compute_device)
        classes = torch.from_numpy(images.classes)[rows].to(compute_device)
        loss = torch.nn.functional.cross_entropy(network(pixels), classes)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        total += loss.detach() * len(rows)
        seen += len(rows)
    return float(total) / seen  # waits for the GPU, so that the epoch has ended


def _accuracy(network: Any, images: Any, batch_size: int, compute_device: Any) -> float:
    import torch

    network.eval()
    correct = 0
    with torch.no_grad():
        for rows in torch.arange(len(images.classes)).split(batch_size):
            predicted = (
                network(torch.from_numpy(images.pixels)[rows].to(compute_device)).argmax(1).cpu()
            )
            correct += int((predicted == torch.from_numpy(images.classes)[rows]).sum())
    return correct / len(images.classes)


def _check(
    parameters: Mapping[str, Any],
    networks: tuple[str, ...],
    datasets: tuple[str, ...],
    vgg16_poolings: int,
) -> None:
    network = parameters["network"]
    for name, choices in (("network", networks), ("dataset", datasets), ("optimiser", OPTIMISERS)):
        if parameters[name] not in choices:
            raise ConfigError(
                f"unknown: {parameters[name]!r}", name, "choose from " + ", ".join(choices)
            )
    least = dict.fromkeys(("epochs", "layers", "neurons", "width", "batch_size"), 1)
    least |= {"samples": 2, "image_size": 8, "seed": 0}
    if network != "fully_connected":
        least["batch_size"] = 2  # for the batch normalisation
    if network == "vgg16":
        least["image_size"] = 2**vgg16_poolings
    for name, value in least.items():
        if parameters[name] < value:
            raise ConfigError(f"must be at least {value} for {network}", name)
    if not 0 < parameters["learning_rate"] < math.inf:
        raise ConfigError("must be positive", "learning_rate")


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application from the command line."""
    args = parse(argv, DEFAULTS, prog="dnn_train", description=__doc__, image=False)
    train(args.out, args.device, args.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
