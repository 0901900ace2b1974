"""Distributed training of an image classifier, by PyTorch's DDP.

Run as ``python -m voxcast_apps.ddp_train --out DIR --threads CPUS``, which starts its
processes, or by ``torchrun``. Each step's batch is divided among the processes, and gloo averages
their gradients: the network does not depend on the number of processes, up to rounding.
``result.json`` holds the time before the first epoch and the time of each epoch. With a folder in
VOXCAST_TRACE_FOLDER each process writes a Chrome trace of PyTorch's profiler to it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from voxcast.apps.phase_log import process_start
from voxcast.errors import ConfigError
from voxcast.files import write_json
from voxcast_apps import ranks
from voxcast_apps.arguments import SMALLEST_RATE, Accepted, Arguments, application, check, timed

DEFAULTS: dict[str, Any] = {
    "model": "small_cnn",
    "dataset": "digits",
    "samples": 1024,
    "image_size": 16,
    "batch_size": 64,
    "epochs": 3,
    "width": 8,
    "learning_rate": 1e-3,
    "seed": 1,
    **ranks.DEFAULTS,
}
ACCEPTED: Accepted = {
    "model": ["small_cnn", "resnet"],
    "dataset": ["digits", "synthetic"],
    **dict.fromkeys((*ranks.DEFAULTS, "epochs", "batch_size"), 1),
    "image_size": 8,
    "width": 4,
    "learning_rate": SMALLEST_RATE,
    "seed": 0,
}
TRACE_VARIABLE = "VOXCAST_TRACE_FOLDER"
_EPOCH_SEEDS = 100_003  # more epochs than this would draw an order twice


def train(options: Arguments) -> None:
    """Train the network with the other processes; the first one writes ``result.json``.

    Raises
    ------
    RunError
        If scikit-learn's digits are missing.
    """
    parameters = options.parameters
    phases = ranks.RankPhases()
    with phases.phase("import"):
        import torch
        import torch.distributed as dist

        from voxcast_apps import training
    with phases.phase("connect"):
        file = os.environ.get(ranks.RENDEZVOUS_VARIABLE)
        rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        method = f"file://{file}" if file else "env://"
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=processes)
    with phases.phase("data"):
        images, held_out = training.load_images(parameters)
    with phases.phase("build"):
        torch.manual_seed(parameters["seed"])
        network = training.ddp_network(parameters["model"], parameters["width"])
        optimiser = torch.optim.Adam(network.parameters(), lr=parameters["learning_rate"])
        parallel = torch.nn.parallel.DistributedDataParallel(network)
    startup_s = time.monotonic() - process_start()
    batch_size, seed = parameters["batch_size"], parameters["seed"]
    epoch_s: list[float] = []
    losses: list[float] = []
    with _traced(rank):
        for epoch in timed(range(parameters["epochs"]), epoch_s):
            with phases.phase("epoch"):
                order = torch.Generator().manual_seed(seed * _EPOCH_SEEDS + epoch)
                batches = torch.randperm(len(images), generator=order).split(batch_size)
                # Processes average their gradients as if all had as many images: a shorter batch
                # is left out.
                own_rows = [
                    batch[rank::processes] for batch in batches if len(batch) == batch_size
                ]
                loss = training.train_epoch(parallel, optimiser, images, own_rows)
                dist.all_reduce(loss)
                losses.append(float(loss) / processes)
    with phases.phase("evaluate"):
        rows = torch.arange(len(held_out))[rank::processes]
        correct = training.correct(network, held_out, rows.split(256))
        dist.all_reduce(correct)
    with phases.phase("write"):
        if rank == 0:
            write_json(options.out / "result.json", {
                "startup_s": startup_s,
                "epoch_s": epoch_s,
                "losses": losses,
                "accuracy": float(correct) / len(held_out),
                "weights": sum(weight.numel() for weight in network.parameters()),
                "processes": processes,
                "threads_per_process": torch.get_num_threads(),
            })  # fmt: skip
    cpu_s = torch.tensor(phases.cpu_s, dtype=torch.float64)
    dist.all_reduce(cpu_s)
    if rank == 0:
        phases.log(cpu_s.tolist())
    dist.destroy_process_group()


def _traced(rank: int) -> contextlib.AbstractContextManager[Any]:
    """Record a block by PyTorch's profiler if a folder for traces is set."""
    folder = os.environ.get(TRACE_VARIABLE)
    if not folder:
        return contextlib.nullcontext()
    from torch.profiler import ProfilerActivity, profile

    Path(folder).mkdir(parents=True, exist_ok=True)
    return profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        on_trace_ready=lambda traced: traced.export_chrome_trace(f"{folder}/rank{rank}.json"),
    )


def run(options: Arguments) -> None:
    """Do the work of one process, or start all of them.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or a batch cannot be divided among the processes.
    """
    parameters, rank = options.parameters, os.environ.get("RANK")
    check(parameters, {"samples": parameters["batch_size"]})
    if parameters["width"] % 4:
        raise ConfigError(f"must be a multiple of 4, not {parameters['width']}", "width")
    if rank is None:
        processes = ranks.process_count(options.threads, parameters)
    else:
        processes = int(os.environ["WORLD_SIZE"])
    if parameters["batch_size"] % processes:
        problem = f"cannot be divided among {processes} processes"
        raise ConfigError(problem, "batch_size", f"choose a multiple of {processes}")
    if rank is not None:
        train(options)
    elif status := ranks.run_torch_program("voxcast_apps.ddp_train", options):
        sys.exit(status)


main = application("ddp_train", __doc__, DEFAULTS, run, accepted=ACCEPTED, image=False)

if __name__ == "__main__":
    sys.exit(main())
