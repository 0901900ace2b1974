"""Overhead of a large campaign: listing, resuming and summarising 10,000 cells; prints JSON.

Run folders are synthetic, with records of the real format; no run is measured. Each step is timed
in a separate process, imports included, without and with the index of the folder. A tenth of the
cells is timed for comparison: the cost per cell must not grow.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BOUND_S = 5.0
APPS = 5
# With this recipe and six phases a record is as long as a real one.
RECIPE = {f"number_{n}": 0.123456789 * n for n in range(30)}


def _app() -> Any:
    from voxcast.records import App

    parameters = {"shrink_factor": 4, "iterations": 50, "tolerance": 1e-7, "classes": 3}
    return App(name="app", version="1", module="m", parameters=parameters)


def settings_of(folder: Path) -> Any:
    """Return the settings of a campaign: one parameter, all volumes, one CPU."""
    from voxcast.measure.plan import CampaignSettings, Sweep
    from voxcast.records import Configuration

    sweep = Sweep(
        name="all", apps=(), parameters={"classes": list(range(2, 2 + APPS))},
        sample=None, scale="full_scale", volumes=None, volumes_offset=0, cpus=(), repeats=1,
        first_repeat=0, repeat_volumes=None,
    )  # fmt: skip
    return CampaignSettings(
        {"app": _app()}, folder, (sweep,), (Configuration("cpu", 1),), stop_after_s=0.0
    )


def plan_of(count: int) -> Any:
    """Return the plan of a campaign of ``count`` cells."""
    import pandas as pd

    from voxcast.measure.plan import make_plan

    names = [f"{n:05d}" for n in range(count // APPS)]
    rows = pd.DataFrame({"volume_id": names, "subject": names, "path": names, "problem": None})
    rows = rows.assign(shape_i=100.0, shape_j=100.0, shape_k=100.0)
    return make_plan(settings_of(Path()), rows)


def make_runs(folder: Path, count: int) -> None:
    """Write a run folder for each cell but the last."""
    from voxcast.measure.host import host_facts
    from voxcast.measure.record import base_of, open_sitting
    from voxcast.records import Phase, as_fields

    phases = [Phase(f"phase_{n}", float(n), n + 1.0, 0.9, 10**8) for n in range(6)]
    sitting = open_sitting(facts=host_facts())
    common = {
        "phases": [as_fields(phase) for phase in phases],
        "host": sitting.host,
        "recipe": RECIPE,
        "container": None,
        "command": ["python", "-P", "-m", "m"],
    }
    for key, cell in list(plan_of(count).cells.items())[:-1]:
        run = dataclasses.replace(
            base_of(cell, sitting, RECIPE), outcome="completed", exit_status=0, runtime_s=6.2,
            cpu_s=6.0, peak_rss_bytes=10**9, peak_cgroup_bytes=2 * 10**9, limit_s=600.0,
            memory_method="cgroup2", cpu_method="cgroup2",
            started_at="2026-01-01T00:00:00.000+00:00",
        )  # fmt: skip
        (folder / key).mkdir(parents=True)
        content = {**common, "run": as_fields(run), "cell": as_fields(cell)}
        text = json.dumps(content, indent=2, sort_keys=True)
        (folder / key / "run.json").write_text(text)


def step_list(folder: Path, count: int) -> int:
    """List the cells of the campaign and count the missing ones, as `status` does."""
    from voxcast.measure.campaign import overview
    from voxcast.runs.series import runs_in

    plan = plan_of(count)
    (row,) = overview(plan, runs_in(folder))
    return int(row["left"])


def step_resume(folder: Path, count: int) -> int:
    """Resume the campaign up to the first run that would be started."""
    from voxcast.measure.local import run_campaign

    plan = plan_of(count)
    plan = dataclasses.replace(plan, paths={name: Path(__file__) for name in plan.paths})
    return run_campaign(settings_of(folder), plan).left


def step_summarise(folder: Path, count: int) -> int:
    """Write the tables of the stage."""
    from voxcast.runs.series import write_tables_of

    return count - len(write_tables_of(folder, folder.parent / "tables"))


STEPS = {"list": step_list, "resume": step_resume, "summarise": step_summarise}


def measure(count: int) -> dict[str, Any]:
    """Time each step on ``count`` cells, twice."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        make_runs(folder, count)
        figures: dict[str, Any] = {"cells": count}
        for step in STEPS:
            for state in ("first_s", "again_s"):
                command = [sys.executable, __file__, "--step", step, str(folder), str(count)]
                start = time.perf_counter()
                process = subprocess.run(command, check=True, capture_output=True, text=True)
                figures.setdefault(step, {})[state] = time.perf_counter() - start
                if int(process.stdout) != 1:
                    raise SystemExit(f"{step}: {process.stdout.strip()} cells left, not one")
    for state in ("first_s", "again_s"):
        figures[f"all_{state}"] = sum(figures[step][state] for step in STEPS)
    return figures


def main() -> int:
    """Measure both sizes, or execute one step (in the process that is timed)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--step", nargs=3, metavar=("STEP", "FOLDER", "COUNT"))
    args = parser.parse_args()
    if args.step:
        step, folder, count = args.step
        print(STEPS[step](Path(folder), int(count)))
        return 0
    small, large = measure(args.cells // 10), measure(args.cells)
    ratios = {
        state: large[f"all_{state}"] / large["cells"] / (small[f"all_{state}"] / small["cells"])
        for state in ("first_s", "again_s")
    }
    figures = {
        "cells_1_in_10": small,
        "cells": large,
        "bound_s": BOUND_S,
        "cost_per_cell_over_that_of_a_tenth": ratios,
        "bound_cost_per_cell": 1.2,
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
