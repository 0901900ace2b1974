"""k-means by MPI as a built-in application: Lloyd's iterations, points divided among processes.

Run as ``python -m voxcast.apps.builtin.kmeans_mpi --out DIR --threads CPUS``, which starts its
processes by ``mpirun``. The centres are broadcast once; in every iteration each process assigns
its points, and the sums and counts of all are added up (Dhillon and Modha 2000). Centres and times
of the iterations are in ``result.json``.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from voxcast.apps.builtin import ranks
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

MODULE = "voxcast.apps.builtin.kmeans_mpi"
DEFAULTS: dict[str, Any] = {
    "points": 200_000,
    "clusters": 16,
    "dimensions": 8,
    "iterations": 30,
    "seed": 1,
    **ranks.DEFAULTS,
}
RESULT_FILE = "result.json"
CHUNK_ROWS = 8192  # of which the distances to all centres are in memory at a time
_SPREAD = 0.2  # standard deviation of a cluster; centres lie in a cube with an edge of 2


def cluster(out: Path, parameters: Mapping[str, Any]) -> None:
    """Cluster the points with the other processes of this MPI program.

    The first process writes ``result.json``: the centres, the sum of squared distances before
    each iteration (`inertia`), and the seconds of each iteration.

    Parameters
    ----------
    out : Path
        Folder for ``result.json``; created if missing.
    parameters : mapping
        As `DEFAULTS`; the number of processes does not change the points.
    """
    phases = RankPhases()
    with phases.phase("import"):
        import numpy as np
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
    iteration_s, inertia = [], []
    sums = np.empty(clusters * (dimensions + 1) + 1)
    with phases.phase("iterate"):
        for _ in range(parameters["iterations"]):
            start = time.monotonic()
            _assign(points, centres, sums)
            comm.Allreduce(MPI.IN_PLACE, sums)
            table = sums[:-1].reshape(clusters, dimensions + 1)
            occupied = table[:, -1] > 0  # a centre without points stays where it is
            centres[occupied] = table[occupied, :-1] / table[occupied, -1:]
            inertia.append(float(sums[-1]))
            iteration_s.append(time.monotonic() - start)
    with phases.phase("write"):
        if comm.rank == 0:
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / RESULT_FILE, {
                "startup_s": startup_s,
                "iteration_s": iteration_s,
                "inertia": inertia,
                "centres": centres.tolist(),
                "counts": table[:, -1].astype(int).tolist(),
                "processes": comm.size,
                "threads_per_process": parameters["threads_per_process"],
            })  # fmt: skip
    cpu_s = np.array(phases.cpu_s)
    total_s = np.empty_like(cpu_s)
    comm.Reduce(cpu_s, total_s)
    if comm.rank == 0:
        log_phases(phases.times, total_s.tolist())


def _points(parameters: Mapping[str, Any], rank: int, processes: int) -> npt.NDArray[np.float64]:
    """Return the points of a process, shape (points, dimensions), from a mixture of normals."""
    import numpy as np

    from voxcast.apps.builtin.shares import generated_rows, share

    seed, size = parameters["seed"], (parameters["clusters"], parameters["dimensions"])
    means = np.random.default_rng(seed).uniform(-1.0, 1.0, size)

    def make(rng: np.random.Generator, rows: int) -> npt.NDArray[np.float64]:
        return means[rng.integers(0, len(means), rows)] + rng.normal(0.0, _SPREAD, (rows, size[1]))

    return generated_rows(make, seed, *share(parameters["points"], rank, processes))


def _assign(
    points: npt.NDArray[np.float64],
    centres: npt.NDArray[np.float64],
    sums: npt.NDArray[np.float64],
) -> None:
    """Assign points to the nearest centres; write sums and counts by centre, and the inertia.

    `sums` has shape (clusters * (dimensions + 1) + 1,): for each centre the sum of its points and
    their number, and at the end the sum of squared distances.
    """
    import numpy as np

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


def check(parameters: Mapping[str, Any]) -> None:
    """Check the parameters.

    Raises
    ------
    ConfigError
        If a parameter is invalid.
    """
    names = ("points", "clusters", "dimensions", "iterations")
    ranks.check_least(parameters, {**dict.fromkeys(names, 1), "seed": 0})
    if parameters["points"] < parameters["clusters"]:
        raise ConfigError("must not be more than points", "clusters")


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """Run the application, or one of its processes, from the command line."""
    args = parse(argv, DEFAULTS, prog="kmeans_mpi", description=__doc__, image=False)
    check(args.parameters)
    if ranks.under_mpi():
        cluster(args.out, args.parameters)
    else:
        arguments = sys.argv[1:] if argv is None else argv
        ranks.become_mpi_program(MODULE, arguments, args.threads, args.parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
