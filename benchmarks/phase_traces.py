"""Records traces of the parallel applications, for the validation of signatures.

Each application with some sizes on 2, 4 and 8 processes of this machine: of mpi4py programs by
``voxcast.phases.traces.mpi_recorder``, of DDP by PyTorch's profiler. A run is a folder with its
traces, ``result.json``, and ``run.json``: application, parameters, processes, wall time, and the
wall time of the same run without a trace. Folders that are complete are not made again.

    nice -n 19 python benchmarks/phase_traces.py FOLDER
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from voxcast.files import atomic_folder, write_json
from voxcast_apps import ddp_train, ranks

PROCESSES = (2, 4, 8)
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
RUN_FILE = "run.json"


def traced_command(app: str, processes: int, arguments: list[str], traces: Path) -> list[str]:
    """Return the command that runs an application on so many processes and records them."""
    module = f"voxcast_apps.{app}"
    python = [sys.executable, "-P", "-m"]
    if app == "ddp_train":  # the variable that is set for it tells where its traces go
        return [*python, module, *arguments]
    recorder = [*python, "voxcast.phases.traces.mpi_recorder", "--out", str(traces), "-m", module]
    return ranks.mpirun(processes, [*recorder, *arguments])


def run_s(command: list[str], variables: dict[str, str], log: Path) -> float:
    """Run a command and return its wall time."""
    start = time.monotonic()
    with log.open("wb") as stream:
        status = subprocess.run(
            command, env=variables, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    if status:
        raise SystemExit(f"{command} failed:\n{log.read_text(errors='replace')[-2000:]}")
    return time.monotonic() - start


def record(app: str, size: dict[str, Any], processes: int, folder: Path) -> dict[str, Any]:
    """Make a run without and one with traces; the second leaves its files in ``folder``."""
    parameters = {**size, "oversubscription": processes}
    out = folder / "out"
    arguments = ["--out", str(out), "--threads", "1", "--parameters", json.dumps(parameters)]
    variables = ranks.rank_variables(1)
    plain_command = [sys.executable, "-P", "-m", f"voxcast_apps.{app}", *arguments]
    plain_s = run_s(plain_command, variables, folder / "plain.log")
    shutil.move(out / "result.json", folder / "plain_result.json")
    traces = folder / "traces"
    if app == "ddp_train":
        variables[ddp_train.TRACE_VARIABLE] = str(traces)
    wall_s = run_s(
        traced_command(app, processes, arguments, traces), variables, folder / "traced.log"
    )
    shutil.move(out / "result.json", folder / "result.json")
    return {
        "app": app,
        "parameters": parameters,
        "processes": processes,
        "cores": len(os.sched_getaffinity(0)),
        "wall_s": wall_s,
        "untraced_wall_s": plain_s,
    }


def main() -> None:
    """Record what is missing in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--app", choices=tuple(SIZES), help="this one alone")
    parser.add_argument("--runs", type=int, default=math.inf, help="at most so many new runs")
    args = parser.parse_args()
    apps = [args.app] if args.app else list(SIZES)
    plan = [
        (app, size, processes, args.folder / f"{app}-{number}-{processes}")
        for app in apps
        for (number, size), processes in itertools.product(enumerate(SIZES[app]), PROCESSES)
    ]
    missing = [entry for entry in plan if not (entry[3] / RUN_FILE).is_file()]
    args.folder.mkdir(parents=True, exist_ok=True)
    print(f"{len(plan) - len(missing)} of {len(plan)} runs are there", file=sys.stderr)
    for number, (app, size, processes, folder) in enumerate(missing):
        if number >= args.runs:
            break
        with atomic_folder(folder) as partial:
            run = record(app, size, processes, partial)
            write_json(partial / RUN_FILE, run)
        walls = f"{run['wall_s']:.1f} s, {run['untraced_wall_s']:.1f} s without traces"
        print(f"{folder.name}: {walls}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
