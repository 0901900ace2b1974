"""A physics-informed network by MPI as a built-in application: the heat equation in one dimension.

Run as ``python -m voxcast.apps.builtin.pinn_mpi --out DIR --threads CPUS``, which starts its
processes by ``mpirun``. A network learns u(x, t) with u_t = a u_xx by the residual at collocation
points (Raissi et al. 2019), which are divided among the processes; in every iteration their
gradients are added up. Start and boundary hold by construction (Lagaris et al. 1998), and the
exact solution is known: the error of the network is in ``result.json``.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from voxcast.apps.builtin import checkpoints, ranks
from voxcast.apps.builtin.arguments import parse
from voxcast.apps.phase_log import process_start
from voxcast.apps.rank_phases import RankPhases, log_phases
from voxcast.errors import ConfigError, exits_cleanly
from voxcast.files import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch

MODULE = "voxcast.apps.builtin.pinn_mpi"
DEFAULTS: dict[str, Any] = {
    "points": 8192,
    "iterations": 100,
    "layers": 3,
    "neurons": 32,
    "learning_rate": 3e-3,
    "seed": 1,
    **checkpoints.DEFAULTS,
    **ranks.DEFAULTS,
}
# What a run that continues from a checkpoint has in common with the one that made it.
IDENTITY = ("points", "layers", "neurons", "seed")
RESULT_FILE = "result.json"
DIFFUSIVITY = 0.3  # a, in the unit square of x and t
_GRID_POINTS = 41  # of each axis, on which the error is computed


def train(out: Path, parameters: Mapping[str, Any]) -> None:
    """Train the network with the other processes of this MPI program.

    The first process writes ``result.json``, and ``checkpoint.pt`` if that is asked for.

    Parameters
    ----------
    out : Path
        Folder for the results; created if missing.
    parameters : mapping
        As `DEFAULTS`. With `restart` the iterations continue those of the checkpoint.

    Raises
    ------
    RunError
        If the checkpoint cannot be used.
    """
    phases = RankPhases()
    with phases.phase("import"):
        import numpy as np
        import torch
        from mpi4py import MPI

        from voxcast.apps.builtin.shares import generated_rows, share
    comm = MPI.COMM_WORLD
    torch.set_default_dtype(torch.float64)  # sums over processes then agree to many digits
    with phases.phase("data"):
        count, seed = parameters["points"], parameters["seed"]
        points = torch.from_numpy(
            generated_rows(_collocation_points, seed, *share(count, comm.rank, comm.size))
        )
    with phases.phase("build"):
        torch.manual_seed(seed)
        network = _network(parameters["layers"], parameters["neurons"])
        optimiser = torch.optim.Adam(network.parameters(), lr=parameters["learning_rate"])
        identity = {name: parameters[name] for name in IDENTITY}
        steps = checkpoints.restore(parameters["restart"], network, optimiser, identity)
    startup_s = time.monotonic() - process_start()
    iteration_s, losses = [], []
    with phases.phase("iterate"):
        for _ in range(parameters["iterations"]):
            start = time.monotonic()
            flat = _gradient(network, points, count)
            comm.Allreduce(MPI.IN_PLACE, flat.numpy())
            losses.append(float(flat[-1]))
            _set_gradient(network, flat)
            optimiser.step()
            iteration_s.append(time.monotonic() - start)
    with phases.phase("write"):
        if comm.rank == 0:
            out.mkdir(parents=True, exist_ok=True)
            if parameters["checkpoint"]:
                path, after = out / checkpoints.CHECKPOINT_FILE, steps + parameters["iterations"]
                checkpoints.save(path, network, optimiser, after, identity)
            write_json(out / RESULT_FILE, {
                "startup_s": startup_s,
                "iteration_s": iteration_s,
                "iterations_before": steps,
                "loss_first": losses[0],
                "loss_last": losses[-1],
                "relative_error": _relative_error(network),
                "weights": sum(weight.numel() for weight in network.parameters()),
                "processes": comm.size,
                "threads_per_process": torch.get_num_threads(),
            })  # fmt: skip
    cpu_s = np.array(phases.cpu_s)
    total_s = np.empty_like(cpu_s)
    comm.Reduce(cpu_s, total_s)
    if comm.rank == 0:
        log_phases(phases.times, total_s.tolist())


def _collocation_points(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
    return rng.uniform(0.0, 1.0, (rows, 2))


def _network(layers: int, neurons: int) -> torch.nn.Module:
    from torch import nn

    sizes = [2, *[neurons] * layers]
    hidden = [
        part
        for before, after in itertools.pairwise(sizes)
        for part in (nn.Linear(before, after), nn.Tanh())
    ]
    return nn.Sequential(*hidden, nn.Linear(neurons, 1))


def solution(network: torch.nn.Module, points: torch.Tensor) -> torch.Tensor:
    """Return u at points (x, t), shape (n, 2), as shape (n,).

    It is sin(pi x) at t = 0, and 0 at x = 0 and x = 1, whatever the network.
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


def _set_gradient(network: torch.nn.Module, flat: torch.Tensor) -> None:
    start = 0
    for weight in network.parameters():
        weight.grad = flat[start : start + weight.numel()].reshape(weight.shape)
        start += weight.numel()


def _relative_error(network: torch.nn.Module) -> float:
    """Return the error of u on a grid, root mean square, relative to that of u."""
    import torch

    axis = torch.linspace(0.0, 1.0, _GRID_POINTS)
    grid = torch.cartesian_prod(axis, axis)
    x, t = grid[:, 0], grid[:, 1]
    exact = torch.sin(math.pi * x) * torch.exp(-DIFFUSIVITY * math.pi**2 * t)
    with torch.no_grad():
        error = solution(network, grid) - exact
    return float(error.square().mean().sqrt() / exact.square().mean().sqrt())


def check(parameters: Mapping[str, Any]) -> None:
    """Check the parameters.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    """
    names = ("points", "iterations", "layers", "neurons")
    ranks.check_least(parameters, {**dict.fromkeys(names, 1), "seed": 0})
    if not 0 < parameters["learning_rate"] < math.inf:
        raise ConfigError("must be positive", "learning_rate")


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application, or one of its processes, from the command line."""
    args = parse(argv, DEFAULTS, prog="pinn_mpi", description=__doc__, image=False)
    check(args.parameters)
    if ranks.under_mpi():
        train(args.out, args.parameters)
    else:
        arguments = sys.argv[1:] if argv is None else argv
        ranks.become_mpi_program(MODULE, arguments, args.threads, args.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
