"""The processes of a parallel application: their number and start, their phases, their rows.

An allocation of ``cpus`` holds ``cpus / threads_per_process`` processes; ``oversubscription`` puts
so many times more of them on the same CPUs. All processes run on one node. On several, start the
application's module by ``srun`` or ``torchrun``: it is then one of their processes.

Each process takes the times of its phases. At the end one process logs its times with the CPU
time of all, which the processes have added up. Generated rows come in blocks, each from a random
stream of its own: a process makes only its share, and the number of processes does not change the
values.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.apps.app import THREAD_VARIABLES
from voxcast.apps.phase_log import process_cpu_s, process_start, write_phase
from voxcast.errors import ConfigError, RunError
from voxcast_apps.arguments import Arguments

if TYPE_CHECKING:
    import numpy.typing as npt

DEFAULTS: dict[str, Any] = {"threads_per_process": 1, "oversubscription": 1}
# Set by Open MPI, by MPICH and Slurm, and by PMIx.
MPI_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
RENDEZVOUS_VARIABLE = "VOXCAST_RENDEZVOUS"  # a file by which our processes find each other
# Of Open MPI, unless they are set: shared memory alone, and nothing to negotiate on a network.
_MPI_VARIABLES = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_oob_tcp_if_include": "lo"}
_POLL_S = 0.02
BLOCK_ROWS = 4096


def process_count(cpus: int, parameters: Mapping[str, Any]) -> int:
    """Return the number of processes on ``cpus``.

    Raises
    ------
    ConfigError
        If the CPUs cannot be divided among the processes.

    Examples
    --------
    >>> process_count(2, {"threads_per_process": 1, "oversubscription": 4})
    8
    """
    threads = int(parameters["threads_per_process"])
    processes, rest = divmod(cpus * int(parameters["oversubscription"]), threads)
    if rest or not processes:
        problem = f"{cpus} CPUs cannot be divided into processes of {threads} threads"
        raise ConfigError(problem, "threads_per_process", "choose a divisor")
    return processes


def mpirun(processes: int, program: Sequence[str]) -> list[str]:
    """Return the command of Open MPI that starts ``program`` in several processes on this node.

    Raises
    ------
    RunError
        If ``mpirun`` is missing.
    """
    path = shutil.which("mpirun")
    if path is None:
        raise RunError("is not on PATH", "mpirun", "install Open MPI, e.g. openmpi-bin of Debian")
    # Processes are bound to the CPUs of the run already; Open MPI would bind them to the first.
    options = ["--oversubscribe", "--bind-to", "none", "-np", str(processes)]
    return [path, *(["--allow-run-as-root"] if os.getuid() == 0 else []), *options, *program]


def rank_variables(threads_per_process: int) -> dict[str, str]:
    """Return the environment of the processes: ours, with the threads of one of them."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(threads_per_process))
    return {**_MPI_VARIABLES, "GLOO_SOCKET_IFNAME": "lo", **os.environ, **threads}


def run_mpi_program(module: str, work: Callable[[Arguments], None], options: Arguments) -> None:
    """Do the work of one MPI process, or become ``mpirun`` with as many of them as fit the CPUs.

    Raises
    ------
    ConfigError, RunError
        As `process_count` and `mpirun`.
    """
    if any(name in os.environ for name in MPI_RANK_VARIABLES):
        work(options)
        return
    # By mpi4py, a process that fails ends all others; they would wait for it forever.
    program = [sys.executable, "-P", "-m", "mpi4py", "-m", module, *sys.argv[1:]]
    command = mpirun(process_count(options.threads, options.parameters), program)
    variables = rank_variables(options.parameters["threads_per_process"])
    os.execve(command[0], command, variables)  # noqa: S606  # no shell is wanted


def run_torch_program(module: str, options: Arguments) -> int:
    """Run ``module`` in as many processes as fit the CPUs, and return the first failed status.

    As ``torchrun``, without its server: the processes find each other by a file.

    Raises
    ------
    ConfigError
        As `process_count`.
    """
    processes = process_count(options.threads, options.parameters)
    variables = rank_variables(options.parameters["threads_per_process"])
    program = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    # A launcher that is terminated ends its processes first. Its handler raises nothing: while a
    # process is being started, nothing would know of it yet.
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(128 + number))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        variables |= {RENDEZVOUS_VARIABLE: f"{folder}/rendezvous", "WORLD_SIZE": str(processes)}
        started = []
        for rank in map(str, range(processes)):
            ranked = {**variables, "RANK": rank, "LOCAL_RANK": rank}
            started.append(stack.enter_context(subprocess.Popen(program, env=ranked)))
            stack.callback(started[-1].kill)
        statuses: list[int | None] = [None]
        while None in statuses and not any(statuses) and not terminated:
            time.sleep(_POLL_S)
            statuses = [process.poll() for process in started]
        return terminated[0] if terminated else abs(next(filter(None, statuses), 0))


class RankPhases:
    """The phases of this process so far; the first is its start."""

    def __init__(self) -> None:
        self.times = [("start", process_start(), time.monotonic())]
        self.cpu_s = [process_cpu_s()]

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Take the times of the block as the phase ``name``."""
        start, cpu_s = time.monotonic(), process_cpu_s()
        yield
        self.times.append((name, start, time.monotonic()))
        self.cpu_s.append(process_cpu_s() - cpu_s)

    def log(self, cpu_s: Sequence[float]) -> None:
        """Log the phases with the CPU seconds of each, added up over all processes."""
        for (name, start, end), total_s in zip(self.times, cpu_s, strict=True):
            write_phase(name, start, end, float(total_s))

    def log_by_mpi(self, comm: Any) -> None:
        """Log the phases in the first process, with the CPU time of all processes of `comm`."""
        total_s = np.empty(len(self.cpu_s))
        comm.Reduce(np.array(self.cpu_s), total_s)
        if comm.rank == 0:
            self.log(total_s.tolist())


def generated_rows(
    make: Callable[[np.random.Generator, int], npt.NDArray[np.float64]],
    seed: int,
    rows: int,
    rank: int,
    processes: int,
) -> npt.NDArray[np.float64]:
    """Return the rows of one of several processes, rows x columns.

    Parameters
    ----------
    make : callable
        Returns a number of rows from a random stream.
    rows : int
        Of all processes.
    """
    first, end = rows * rank // processes, rows * (rank + 1) // processes
    blocks = []
    for block in range(first // BLOCK_ROWS, -(-end // BLOCK_ROWS)):
        generated = make(np.random.default_rng([seed, block]), BLOCK_ROWS)
        start = block * BLOCK_ROWS
        blocks.append(generated[max(first - start, 0) : end - start])
    return np.concatenate(blocks)
