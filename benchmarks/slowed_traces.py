"""Records traces on this machine slowed in three ways, for the transfer of signatures.

In each way a short run and a whole one of each application: on one core for all processes
(``taskset``), beside a load of as many computing processes as there are cores, and with half of
the CPU time (a quota of a control group, version 1; left out where none can be made). The base is
recorded by the same command right before. Folders that are complete are not made again.

    python benchmarks/slowed_traces.py FOLDER
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phase_traces import RUN_FILE, run_s, traced_command
from voxcast.files import atomic_folder, write_json
from voxcast_apps import ddp_train, ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 2
# Each application with the parameter that makes it short, and its value in a short run.
WORK: dict[str, tuple[dict[str, Any], str, int]] = {
    "kmeans_mpi": ({"points": 200_000, "clusters": 16, "dimensions": 8, "iterations": 300},
                   "iterations", 40),
    "pinn_mpi": ({"points": 3000, "iterations": 800, "layers": 3, "neurons": 32},
                 "iterations", 80),
    "ddp_train": ({"model": "small_cnn", "samples": 2048, "epochs": 20, "width": 8,
                   "image_size": 16}, "epochs", 3),
}  # fmt: skip
WAYS = ("base", "one_core", "load", "quota")
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000  # short, so that a process is stopped often rather than long
LOAD = "while True: sum(range(10000))"


@contextlib.contextmanager
def cpu_quota(cpus: float) -> Iterator[list[str]]:
    """Make a control group with so many CPUs; yield what runs a command in it."""
    group = CPU_GROUPS / f"voxcast_{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD_US)))
        yield ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        group.rmdir()


@contextlib.contextmanager
def slowed(slowing: str) -> Iterator[list[str]]:
    """Slow this machine for the block; yield what goes before a command."""
    cores = sorted(os.sched_getaffinity(0))
    if slowing == "one_core":
        yield ["taskset", "-c", str(cores[0])]
        return
    if slowing == "quota":
        with cpu_quota(len(cores) / 2) as before:
            yield before
        return
    load = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in cores if slowing == "load"]
    try:
        yield []
    finally:
        for process in load:
            process.kill()
            process.wait()


def record(app: str, parameters: dict[str, Any], slowing: str, folder: Path) -> dict[str, Any]:
    """Make a traced run; its files go to ``folder``."""
    parameters = {**parameters, "oversubscription": PROCESSES}
    options = ["--threads", "1", "--parameters", json.dumps(parameters)]
    arguments = ["--out", str(folder / "out"), *options]
    # Processes of MPI that share a core must give it away while they wait: a process that spins
    # until its slice ends makes of one core a machine that nobody would use.
    variables = ranks.rank_variables(1) | {"OMPI_MCA_mpi_yield_when_idle": "1"}
    traces = folder / "traces"
    if app == "ddp_train":
        variables[ddp_train.TRACE_VARIABLE] = str(traces)
    with slowed(slowing) as before:
        command = [*before, *traced_command(app, PROCESSES, arguments, traces)]
        wall_s = run_s(command, variables, folder / "traced.log")
    return {"app": app, "way": slowing, "parameters": parameters, "wall_s": wall_s}


def main() -> None:
    """Record what is missing in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    # A load must not outlive this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ways = WAYS if os.access(CPU_GROUPS, os.W_OK) else WAYS[:-1]
    for app, (parameters, name, short) in WORK.items():
        for slowing in ways:
            for length in ("whole",) if slowing == "base" else ("short", "whole"):
                folder = args.folder / f"{app}-{slowing}-{length}"
                if (folder / RUN_FILE).is_file():
                    continue
                size = {**parameters, name: short} if length == "short" else parameters
                with atomic_folder(folder) as partial:
                    run = record(app, size, slowing, partial)
                    write_json(partial / RUN_FILE, run | {"length": length})
                print(f"{folder.name}: {run['wall_s']:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
