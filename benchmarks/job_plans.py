"""One core a job, whole nodes and planned jobs on the same cells, simulated with uncertain times.

Cells take 30 s to 3,000 s on one core, evenly on a logarithmic scale, and speed up by Amdahl's law
with a serial share of 2 to 30 % on 2 to 16 cores. Plans are made of predicted times; what happens
is drawn: errors of every cell, and an error shared by all. Jobs are placed by list scheduling as
they end. Writes JSON, e.g. results/plan/simulation.json (``make plans``).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from voxcast.allocation.list_schedule import Machine
from voxcast.allocation.moldable import MoldableTasks
from voxcast.files import write_json
from voxcast.hpc.job_plan import one_core_a_job, plan_jobs, whole_node_a_job

CORES = (1, 2, 4, 8, 16)
SHORTEST_S, LONGEST_S = 30.0, 3000.0
SERIAL_SHARE = (0.02, 0.3)
NODES, CORES_PER_NODE = 64, 16
CELLS = (500, 2_000, 10_000, 100_000)
JOB_STARTS_S = (5.0, 30.0)
SPREADS = (0.1, 0.3)  # of the logarithm of a cell's time
SHARED_SPREAD = 0.1
PLANNED_SPREAD = 0.2  # that the plan expects
DRAWS = 5


def runtimes(cells: int, seed: int) -> np.ndarray:
    """Return the predicted seconds of cells by number of cores, shape (cells, cores)."""
    rng = np.random.default_rng(seed)
    one_core_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** rng.random(cells)
    serial = rng.uniform(*SERIAL_SHARE, cells)[:, None]
    times: np.ndarray = one_core_s[:, None] * (serial + (1 - serial) / np.array(CORES))
    return times


def simulated(cells: int, job_start_s: float, seed: int = 11) -> dict[str, Any]:
    """Return makespan and core-hours of each way, as predicted and over draws of what happens."""
    tasks = MoldableTasks.of(runtimes(cells, seed), CORES, CORES_PER_NODE)
    machine = Machine(NODES, CORES_PER_NODE, job_start_s)
    started = time.perf_counter()
    planned = plan_jobs(tasks, machine, [0] * cells, spread=np.full(cells, PLANNED_SPREAD))
    planning_s = time.perf_counter() - started
    ways = {
        "planned": planned,
        "one_core_a_job": one_core_a_job(tasks, machine),
        "whole_nodes": whole_node_a_job(tasks, machine),
    }
    record: dict[str, Any] = {
        "cells": cells, "nodes": NODES, "cores_per_node": CORES_PER_NODE,
        "job_start_s": job_start_s, "bound_s": tasks.makespan_bound(machine.cores),
        "planning_s": planning_s, "ways": {},
    }  # fmt: skip
    for name, plan in ways.items():
        _, cores = tasks.chosen(plan.options)
        values, counts = np.unique(cores, return_counts=True)
        record["ways"][name] = {
            "jobs": len(plan.jobs),
            "tasks_by_cores": dict(zip(map(str, values), counts.tolist(), strict=True)),
            "predicted": {"makespan_s": plan.makespan_s(), "core_h": plan.core_h()},
            "drawn": {f"{spread:g}": _drawn(plan, spread, seed) for spread in SPREADS},
        }
    return record


def _drawn(plan: Any, spread: float, seed: int) -> dict[str, Any]:
    makespans_s, core_h = [], []
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, draw])  # the same errors for every way
        errors = spread * rng.standard_normal(len(plan.task_s))
        task_s = plan.task_s * np.exp(errors + SHARED_SPREAD * rng.standard_normal())
        makespans_s.append(plan.makespan_s(task_s))
        core_h.append(plan.core_h(task_s))
    return {
        "makespan_s": makespans_s, "core_h": core_h,
        "median_makespan_s": statistics.median(makespans_s),
        "median_core_h": statistics.median(core_h),
    }  # fmt: skip


def main() -> int:
    """Simulate all sizes and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", type=int, nargs="+", default=list(CELLS))
    args = parser.parse_args()
    rows = []
    for cells in args.cells:
        for job_start_s in JOB_STARTS_S:
            rows.append(simulated(cells, job_start_s))
            ways = rows[-1]["ways"].items()
            print(cells, job_start_s, {n: record["predicted"] for n, record in ways}, flush=True)
    write_json(args.out, {
        "cells_s": [SHORTEST_S, LONGEST_S], "serial_share": SERIAL_SHARE,
        "shared_spread": SHARED_SPREAD, "planned_spread": PLANNED_SPREAD,
        "draws": DRAWS, "rows": rows,
    })  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
