"""Records traces of the parallel applications, for the validation of signatures.

Each application with some sizes on 2, 4 and 8 processes of this machine, into ``FOLDER/plain``;
and on two processes of this machine slowed in three ways, into ``FOLDER/slowed``: on one core for
all processes (``taskset``), beside a load of as many computing processes as there are cores, and
with half of the CPU time (a quota of a control group, version 1; left out where none can be made).
A run is a folder with its traces and ``run.json``. Folders that are complete are not made again.

    nice -n 19 python benchmarks/phase_traces.py FOLDER
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.files import atomic_folder, write_json
from voxcast_apps import ddp_train, ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES, SLOWED_PROCESSES = (2, 4, 8), 2
# Sizes in which steps take from milliseconds to tenths of a second, and their number differs.
SIZES: dict[str, tuple[dict[str, Any], ...]] = {
    "kmeans_mpi": (
        {"points": 60_000, "clusters": 8, "dimensions": 4, "iterations": 360},
        {"points": 200_000, "clusters": 16, "dimensions": 8, "iterations": 240},
        {"points": 400_000, "clusters": 32, "dimensions": 8, "iterations": 150},
        {"points": 200_000, "clusters": 64, "dimensions": 12, "iterations": 180},
    ),
    "pinn_mpi": (
        {"points": 1000, "iterations": 1500, "layers": 2, "neurons": 16},
        {"points": 3000, "iterations": 800, "layers": 3, "neurons": 32},
        {"points": 6000, "iterations": 400, "layers": 4, "neurons": 32},
        {"points": 3000, "iterations": 600, "layers": 3, "neurons": 48},
    ),
    "ddp_train": (
        {"model": "small_cnn", "samples": 1024, "epochs": 30, "width": 4, "dataset": "digits"},
        {"model": "small_cnn", "samples": 1024, "epochs": 12, "width": 8, "image_size": 32},
        {"model": "resnet", "samples": 1024, "epochs": 8, "width": 4, "image_size": 16},
        {"model": "resnet", "samples": 1024, "epochs": 6, "width": 8, "image_size": 24},
    ),
}
# For the slowed machine: each application with the parameter that makes it short, and its value
# in a short run.
WORK: dict[str, tuple[dict[str, Any], str, int]] = {
    "kmeans_mpi": ({"points": 200_000, "clusters": 16, "dimensions": 8, "iterations": 300},
                   "iterations", 40),
    "pinn_mpi": ({"points": 3000, "iterations": 800, "layers": 3, "neurons": 32},
                 "iterations", 80),
    "ddp_train": ({"model": "small_cnn", "samples": 2048, "epochs": 20, "width": 8,
                   "image_size": 16}, "epochs", 3),
}  # fmt: skip
WAYS = ("base", "one_core", "load", "quota")
RUN_FILE = "run.json"
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


def record(
    folder: Path, app: str, size: dict[str, Any], processes: int, slowing: str = "base"
) -> dict[str, Any]:
    """Make a traced run, whose files go to a folder; return what it was."""
    parameters = {**size, "oversubscription": processes}
    options = ["--threads", "1", "--parameters", json.dumps(parameters)]
    application = ["-m", f"voxcast_apps.{app}", "--out", str(folder / "out"), *options]
    python, traces = [sys.executable, "-P"], folder / "traces"
    # Processes of MPI that share a core must give it away while they wait: a process that spins
    # until its slice ends makes of one core a machine that nobody would use.
    variables = ranks.rank_variables(1) | {"OMPI_MCA_mpi_yield_when_idle": "1"}
    if app == "ddp_train":
        variables[ddp_train.TRACE_VARIABLE] = str(traces)
        command = [*python, *application]
    else:
        recorder = [*python, "-m", "voxcast.phases.recorder", "--out", str(traces)]
        command = ranks.mpirun(processes, [*recorder, *application])
    log = folder / "traced.log"
    with slowed(slowing) as before, log.open("wb") as stream:
        start = time.monotonic()
        ended = subprocess.run(
            [*before, *command], env=variables, stdout=stream, stderr=stream, check=False
        )
    if ended.returncode:
        raise SystemExit(f"{command} failed:\n{log.read_text(errors='replace')[-2000:]}")
    return {"app": app, "parameters": parameters, "processes": processes, "way": slowing,
            "wall_s": time.monotonic() - start}  # fmt: skip


def main() -> None:
    """Record what is missing in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    # A load must not outlive this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan: dict[Path, tuple[str, dict[str, Any], int, str]] = {}
    for app, sizes in SIZES.items():
        for (number, size), processes in itertools.product(enumerate(sizes), PROCESSES):
            plan[folder / f"plain/{app}-{number}-{processes}"] = (app, size, processes, "base")
    for app, (size, name, short) in WORK.items():
        for slowing in WAYS if os.access(CPU_GROUPS, os.W_OK) else WAYS[:-1]:
            run = (app, size, SLOWED_PROCESSES, slowing)
            plan[folder / f"slowed/{app}-{slowing}-whole"] = run
            if slowing != "base":
                run = (app, {**size, name: short}, SLOWED_PROCESSES, slowing)
                plan[folder / f"slowed/{app}-{slowing}-short"] = run
    missing = {path: words for path, words in plan.items() if not (path / RUN_FILE).is_file()}
    print(f"{len(plan) - len(missing)} of {len(plan)} runs are there", file=sys.stderr)
    for path, words in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(path) as partial:
            facts = record(partial, *words)
            write_json(partial / RUN_FILE, facts | {"length": path.name.rpartition("-")[2]})
        print(f"{path.name}: {facts['wall_s']:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
