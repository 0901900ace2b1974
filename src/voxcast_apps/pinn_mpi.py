"""A physics-informed network by MPI: the heat equation in one dimension.

Run as ``python -m voxcast_apps.pinn_mpi --out DIR --threads CPUS``, which starts its
processes by ``mpirun``. A network learns u(x, t) with u_t = a u_xx by the residual at collocation
points (Raissi et al. 2019), which are divided among the processes; in every iteration their
gradients are added up. Start and boundary hold by construction (Lagaris et al. 1998).
"""

from __future__ import annotations

import functools
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from voxcast.apps.phase_log import process_start
from voxcast.files import write_json
from voxcast_apps import ranks
from voxcast_apps.arguments import SMALLEST_RATE, Accepted, Arguments, application, timed

if TYPE_CHECKING:
    import torch

DEFAULTS: dict[str, Any] = {
    "points": 8192,
    "iterations": 100,
    "layers": 3,
    "neurons": 32,
    "learning_rate": 3e-3,
    "seed": 1,
    **ranks.DEFAULTS,
}
ACCEPTED: Accepted = {**dict.fromkeys(DEFAULTS, 1), "learning_rate": SMALLEST_RATE, "seed": 0}
DIFFUSIVITY = 0.3  # a, in the unit square of x and t


def train(options: Arguments) -> None:
    """Train the network with the other processes; the first one writes ``result.json``."""
    parameters = options.parameters
    phases = ranks.RankPhases()
    with phases.phase("import"):
        import torch
        from mpi4py import MPI

        from voxcast_apps import training
    comm = MPI.COMM_WORLD
    torch.set_default_dtype(torch.float64)  # sums over processes then agree to many digits
    with phases.phase("data"):
        count, seed = parameters["points"], parameters["seed"]
        points = torch.from_numpy(
            ranks.generated_rows(
                lambda rng, n: rng.uniform(0.0, 1.0, (n, 2)), seed, count, comm.rank, comm.size
            )
        )
    with phases.phase("build"):
        torch.manual_seed(seed)
        neurons = parameters["neurons"]
        hidden = training.dense([2, *[neurons] * parameters["layers"]], torch.nn.Tanh)
        network = torch.nn.Sequential(*hidden, torch.nn.Linear(neurons, 1))
        optimiser = torch.optim.Adam(network.parameters(), lr=parameters["learning_rate"])
        weights = list(network.parameters())
        sizes = [weight.numel() for weight in weights]
    startup_s = time.monotonic() - process_start()
    iteration_s: list[float] = []
    losses: list[float] = []
    with phases.phase("iterate"):
        for _ in timed(range(parameters["iterations"]), iteration_s):
            flat = _gradient(network, points, count)
            comm.Allreduce(MPI.IN_PLACE, flat.numpy())
            losses.append(float(flat[-1]))
            for weight, part in zip(weights, flat[:-1].split(sizes), strict=True):
                weight.grad = part.view_as(weight)
            optimiser.step()
    with phases.phase("write"):
        if comm.rank == 0:
            write_json(options.out / "result.json", {
                "startup_s": startup_s,
                "iteration_s": iteration_s,
                "loss_first": losses[0],
                "loss_last": losses[-1],
                "weights": sum(sizes),
                "processes": comm.size,
                "threads_per_process": torch.get_num_threads(),
            })  # fmt: skip
    phases.log_by_mpi(comm)


def solution(network: torch.nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Return u at points (x, t), shape (n, 2), as shape (n,).

    It is sin(pi x) at t = 0, and 0 at x = 0 and x = 1, for any network.
    """
    import torch

    x, t = points[:, 0], points[:, 1]
    free: torch.Tensor = network(points)[:, 0]
    return torch.sin(math.pi * x) + t * x * (1.0 - x) * free


def _gradient(network: torch.nn.Module, points: torch.Tensor, count: int) -> torch.Tensor:
    """Return the share of these points in the gradient of the mean squared residual.

    Its last number, after the gradients of all weights, is their share in the loss.
    """
    import torch

    inputs = points.clone().requires_grad_()
    first = torch.autograd.grad(solution(network, inputs).sum(), inputs, create_graph=True)[0]
    u_xx = torch.autograd.grad(first[:, 0].sum(), inputs, create_graph=True)[0][:, 0]
    loss = (first[:, 1] - DIFFUSIVITY * u_xx).square().sum() / count
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return torch.cat([*(part.flatten() for part in gradients), loss.detach().reshape(1)])


run = functools.partial(ranks.run_mpi_program, "voxcast_apps.pinn_mpi", train)
main = application("pinn_mpi", __doc__, DEFAULTS, run, accepted=ACCEPTED, image=False)

if __name__ == "__main__":
    sys.exit(main())
