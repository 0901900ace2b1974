"""k-means by MPI: Lloyd's iterations, points divided among processes.

Run as ``python -m voxcast_apps.kmeans_mpi --out DIR --threads CPUS``, which starts its
processes by ``mpirun``. The centres are broadcast once; in every iteration each process assigns
its points, and the sums and counts of all are added up (Dhillon and Modha 2000). Centres and times
of the iterations are in ``result.json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.apps.phase_log import process_start
from voxcast.errors import ConfigError
from voxcast.files import write_json
from voxcast_apps import ranks
from voxcast_apps.arguments import Accepted, Arguments, application, timed

if TYPE_CHECKING:
    import numpy.typing as npt

DEFAULTS: dict[str, Any] = {
    "points": 200_000,
    "clusters": 16,
    "dimensions": 8,
    "iterations": 30,
    "seed": 1,
    **ranks.DEFAULTS,
}
ACCEPTED: Accepted = {**dict.fromkeys(DEFAULTS, 1), "seed": 0}
CHUNK_ROWS = 8192  # points whose distances to all centres are in memory at a time
_SPREAD = 0.2  # standard deviation of a cluster; centres lie in a cube with an edge of 2


def cluster(options: Arguments) -> None:
    """Cluster the points with the other processes of this MPI program.

    The first process writes ``result.json``: the centres, the sum of squared distances before
    each iteration (`inertia`), and the seconds of each iteration. The number of processes does not
    change the points.
    """
    parameters = options.parameters
    phases = ranks.RankPhases()
    with phases.phase("import"):
        from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with phases.phase("data"):
        points = _points(parameters, comm.rank, comm.size)
        clusters, dimensions = parameters["clusters"], parameters["dimensions"]
        centres = np.empty((clusters, dimensions))
        if comm.rank == 0:
            # Points from a stream of their own, so that any number of processes begins alike.
            centres[:] = _points({**parameters, "points": clusters}, 0, 1)
        comm.Bcast(centres, root=0)
    startup_s = time.monotonic() - process_start()
    iteration_s: list[float] = []
    inertia: list[float] = []
    sums = np.empty(clusters * (dimensions + 1) + 1)
    with phases.phase("iterate"):
        for _ in timed(range(parameters["iterations"]), iteration_s):
            _assign(points, centres, sums)
            comm.Allreduce(MPI.IN_PLACE, sums)
            table = sums[:-1].reshape(clusters, dimensions + 1)
            occupied = table[:, -1] > 0  # a centre without points stays where it is
            centres[occupied] = table[occupied, :-1] / table[occupied, -1:]
            inertia.append(float(sums[-1]))
    with phases.phase("write"):
        if comm.rank == 0:
            write_json(options.out / "result.json", {
                "startup_s": startup_s,
                "iteration_s": iteration_s,
                "inertia": inertia,
                "centres": centres.tolist(),
                "counts": table[:, -1].astype(int).tolist(),
                "processes": comm.size,
                "threads_per_process": parameters["threads_per_process"],
            })  # fmt: skip
    phases.log_by_mpi(comm)


def _points(parameters: Mapping[str, Any], rank: int, processes: int) -> npt.NDArray[np.float64]:
    """Return the points of a process, shape (points, dimensions), from a mixture of normals."""
    seed, size = parameters["seed"], (parameters["clusters"], parameters["dimensions"])
    means = np.random.default_rng(seed).uniform(-1.0, 1.0, size)

    def make(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
        return means[rng.integers(0, len(means), rows)] + rng.normal(0.0, _SPREAD, (rows, size[1]))

    return ranks.generated_rows(make, seed, parameters["points"], rank, processes)


def _assign(
    points: npt.NDArray[np.float64],
    centres: npt.NDArray[np.float64],
    sums: npt.NDArray[np.float64],
) -> None:
    """Assign points to the nearest centres; write sums and counts by centre, and the inertia.

    `sums` has shape (clusters * (dimensions + 1) + 1,): for each centre the sum of its points and
    their number, and at the end the sum of squared distances.
    """
    clusters = len(centres)
    sums[:] = 0.0
    table = sums[:-1].reshape(clusters, -1)
    squares = (centres**2).sum(axis=1)
    for start in range(0, len(points), CHUNK_ROWS):
        chunk = points[start : start + CHUNK_ROWS]
        distances = squares - 2.0 * chunk @ centres.T  # less the square of the point
        nearest = distances.argmin(axis=1)
        sums[-1] += distances.min(axis=1).sum() + (chunk**2).sum()
        for column in range(chunk.shape[1]):
            table[:, column] += np.bincount(nearest, chunk[:, column], clusters)
        table[:, -1] += np.bincount(nearest, minlength=clusters)


def run(options: Arguments) -> None:
    """Do the work of one process, or start all of them.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    """
    if options.parameters["points"] < options.parameters["clusters"]:
        raise ConfigError("must not be more than points", "clusters")
    ranks.run_mpi_program("voxcast_apps.kmeans_mpi", cluster, options)


main = application("kmeans_mpi", __doc__, DEFAULTS, run, accepted=ACCEPTED, image=False)

if __name__ == "__main__":
    sys.exit(main())
