"""The processes of a parallel built-in application: their number, and how they are started.

An allocation of ``cpus`` holds ``cpus / threads_per_process`` processes; ``oversubscription`` puts
so many times more of them on the same CPUs. All processes run on one node. On several, start the
application's module by ``srun`` or ``torchrun``: it is then one of their processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.apps.launch import THREAD_VARIABLES
from voxcast.errors import ConfigError, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULTS: dict[str, Any] = {"threads_per_process": 1, "oversubscription": 1}
# Set by Open MPI, by MPICH and Slurm, and by PMIx.
MPI_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
RENDEZVOUS_VARIABLE = "VOXCAST_RENDEZVOUS"  # a file by which our processes find each other
# Of Open MPI, unless they are set: shared memory alone, and nothing to negotiate on a network.
_MPI_VARIABLES = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_oob_tcp_if_include": "lo"}
_GRACE_S = 5.0


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
    threads: int = parameters["threads_per_process"]
    oversubscription: int = parameters["oversubscription"]
    check_least(parameters, dict.fromkeys(DEFAULTS, 1))
    processes, rest = divmod(cpus * oversubscription, threads)
    if rest or not processes:
        problem = f"{cpus} CPUs cannot be divided into processes of {threads} threads"
        raise ConfigError(problem, "threads_per_process", "choose a divisor")
    return processes


def check_least(parameters: Mapping[str, Any], least: Mapping[str, int]) -> None:
    """Check that parameters are not below their least values.

    Raises
    ------
    ConfigError
        For the first that is.
    """
    for name, value in least.items():
        if parameters[name] < value:
            raise ConfigError(f"must be at least {value}, not {parameters[name]}", name)


def under_mpi() -> bool:
    """Tell whether this process was started as one of an MPI program."""
    return any(name in os.environ for name in MPI_RANK_VARIABLES)


def mpirun(processes: int, program: Sequence[str]) -> list[str]:
    """Return the command of Open MPI that starts ``program`` in several processes on this node.

    Raises
    ------
    RunError
        If there is no ``mpirun``.
    """
    path = shutil.which("mpirun")
    if path is None:
        then = "install Open MPI, e.g. openmpi-bin of Debian"
        raise RunError("is not on PATH", "mpirun", then)
    # Processes are bound to the CPUs of the run already; Open MPI would bind them to the first.
    options = ["--oversubscribe", "--bind-to", "none", "-np", str(processes)]
    return [path, *(["--allow-run-as-root"] if os.getuid() == 0 else []), *options, *program]


def rank_variables(threads_per_process: int) -> dict[str, str]:
    """Return the environment of the processes: ours, with the threads of one of them."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(threads_per_process))
    return {**_MPI_VARIABLES, "GLOO_SOCKET_IFNAME": "lo", **os.environ, **threads}


def become_mpi_program(module: str, arguments: Sequence[str], cpus: int, parameters: Any) -> None:
    """Replace this process by ``mpirun`` with as many processes of ``module`` as fit ``cpus``.

    Raises
    ------
    ConfigError, RunError
        As `process_count` and `mpirun`.
    """
    # By mpi4py, a process that fails ends all others; they would wait for it forever.
    program = [sys.executable, "-P", "-m", "mpi4py", "-m", module, *arguments]
    command = mpirun(process_count(cpus, parameters), program)
    variables = rank_variables(parameters["threads_per_process"])
    os.execve(command[0], command, variables)  # noqa: S606  # no shell is wanted


def run_torch_program(
    module: str, arguments: Sequence[str], cpus: int, parameters: Mapping[str, Any]
) -> int:
    """Run ``module`` in as many processes as fit ``cpus``, and return the first failed status.

    As ``torchrun``, without its server: the processes find each other by a file.

    Raises
    ------
    ConfigError
        As `process_count`.
    """
    processes = process_count(cpus, parameters)
    variables = rank_variables(parameters["threads_per_process"])
    program = [sys.executable, "-P", "-m", module, *arguments]
    # A launcher that is terminated ends its processes first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as folder:
        variables[RENDEZVOUS_VARIABLE] = str(Path(folder, "rendezvous"))
        variables["WORLD_SIZE"] = str(processes)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(processes):
                rank_environment = {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                started.append(subprocess.Popen(program, env=rank_environment))
            return _first_failure(started)
        finally:
            _stop(started)


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    while True:
        statuses = [process.poll() for process in processes]
        failed = [status for status in statuses if status]
        if failed or None not in statuses:
            return abs(failed[0]) if failed else 0
        time.sleep(0.02)


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
