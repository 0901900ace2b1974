"""Training of a deep network, the use case of HARP.

Run as ``python -m voxcast_apps.dnn_train --out DIR``. Its ``result.json`` holds the time before
the first epoch and the time of each epoch, from which the time of a longer run follows.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from voxcast.apps.phase_log import phase, process_start, started
from voxcast.files import write_json
from voxcast_apps.arguments import SMALLEST_RATE, Accepted, Arguments, application, check, timed

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
ACCEPTED: Accepted = {
    "network": ["fully_connected", "vgg16", "resnet50"],
    "dataset": ["digits", "synthetic"],
    "optimiser": ["sgd", "adam"],
    **dict.fromkeys(("epochs", "layers", "neurons", "width", "batch_size"), 1),
    "samples": 2,
    "image_size": 8,
    "learning_rate": SMALLEST_RATE,
    "seed": 0,
}
LEAST_OF_NETWORK = {  # a batch normalisation needs two images; VGG16 halves them five times
    "vgg16": {"batch_size": 2, "image_size": 32},
    "resnet50": {"batch_size": 2},
}
MOMENTUM = 0.9  # of sgd


def train(options: Arguments) -> None:
    """Train a network, evaluate it on held-out images, and log each step and epoch as a phase.

    In ``result.json`` `peak_cuda_*` is the memory of torch's tensors without the driver's; None on
    a CPU.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    RunError
        If a GPU is requested and missing, or scikit-learn's digits are missing.
    """
    parameters = options.parameters
    check(parameters, LEAST_OF_NETWORK.get(parameters["network"], {}))
    started()
    with phase("import"):
        import torch

        from voxcast_apps import training
    device = options.torch_device()
    with phase("data"):
        images, held_out = training.load_images(parameters)
    with phase("build"):
        torch.manual_seed(parameters["seed"])
        sizes = {name: parameters[name] for name in ("image_size", "layers", "neurons", "width")}
        network = training.dnn_network(parameters["network"], **sizes).to(device)
        weights, rate = list(network.parameters()), parameters["learning_rate"]
        optimiser: torch.optim.Optimizer = torch.optim.Adam(weights, lr=rate)
        if parameters["optimiser"] == "sgd":
            optimiser = torch.optim.SGD(weights, lr=rate, momentum=MOMENTUM)
    startup_s = time.monotonic() - process_start()
    batch_size = parameters["batch_size"]
    epoch_s: list[float] = []
    losses = []
    for _ in timed(range(parameters["epochs"]), epoch_s):
        with phase("epoch"):
            batches = torch.randperm(len(images)).split(batch_size)
            # Batch normalisation needs at least two images.
            batches = [rows for rows in batches if len(rows) > 1 or batch_size == 1]
            loss = training.train_epoch(network.train(), optimiser, images, batches, device)
            losses.append(float(loss))  # waits for the GPU, so that the epoch has ended
    with phase("evaluate"):
        batches = torch.arange(len(held_out)).split(batch_size)
        correct = training.correct(network.eval(), held_out, batches, device)
    with phase("write"):
        on_gpu = options.device == "gpu"
        result = {
            "startup_s": startup_s,
            "epoch_s": epoch_s,
            "loss_first": losses[0] if math.isfinite(losses[0]) else None,
            "loss_last": losses[-1] if math.isfinite(losses[-1]) else None,
            "accuracy": float(correct) / len(held_out),
            "weights": sum(weight.numel() for weight in weights),
            "threads": torch.get_num_threads(),
            "gpu_model": torch.cuda.get_device_name() if on_gpu else None,
            "peak_cuda_allocated_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
            "peak_cuda_reserved_bytes": torch.cuda.max_memory_reserved() if on_gpu else None,
        }
        write_json(options.out / "result.json", result)


main = application("dnn_train", __doc__, DEFAULTS, train, accepted=ACCEPTED, image=False)

if __name__ == "__main__":
    sys.exit(main())
