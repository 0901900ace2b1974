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
    from voxcast.campaigns.settings import CampaignSettings
    from voxcast.campaigns.sweeps import Sweep
    from voxcast.records import Configuration

    sweep = Sweep(
        name="all", apps=(), parameters={"classes": list(range(2, 2 + APPS))},
        sample=None, scale="full_scale", volumes=None, volumes_offset=0, cpus=(), repeats=1,
        repeat_volumes=None, choose="all",
    )  # fmt: skip
    return CampaignSettings(
        {"app": _app()}, folder, (sweep,), (Configuration("cpu", 1),), stop_after_s=0.0
    )


def plan_of(count: int) -> Any:
    """Return the plan of a campaign of ``count`` cells."""
    import pandas as pd

    from voxcast.campaigns.plan import make_plan

    names = [f"{n:05d}" for n in range(count // APPS)]
    rows = pd.DataFrame({"volume_id": names, "subject": names, "path": names, "problem": None})
    rows = rows.assign(shape_i=100.0, shape_j=100.0, shape_k=100.0)
    return make_plan(settings_of(Path()), rows)


def make_runs(folder: Path, count: int) -> None:
    """Write a run folder for each cell but the last."""
    from voxcast.profiling.host import host_facts
    from voxcast.records import Phase, Profile, as_fields

    phases = tuple(Phase(f"phase_{n}", float(n), n + 1.0, 0.9, 10**8) for n in range(6))
    profile = Profile(
        "completed", 0, 6.2, 6.0, 10**9, 2 * 10**9, "cgroup2", "cgroup2",
        "2026-01-01T00:00:00.000+00:00", 600.0, phases=phases,
    )  # fmt: skip
    common = {
        "profile": as_fields(profile),
        "host": dataclasses.asdict(host_facts()),
        "probes": {"probe_cpu": 1.0, "probe_membw": 1.0, "probe_disk": 1.0},
        "sitting": "2026-01-01-00000000-1",
        "recipe": RECIPE,
        "container": None,
        "command": ["python", "-P", "-m", "m"],
    }
    for key, cell in list(plan_of(count).cells.items())[:-1]:
        (folder / key).mkdir(parents=True)
        text = json.dumps({**common, "cell": as_fields(cell)}, indent=2, sort_keys=True)
        (folder / key / "record.json").write_text(text)


def step_list(folder: Path, count: int) -> int:
    """List the cells of the campaign and count the missing ones, as `status` does."""
    from voxcast.campaigns.overview import overview
    from voxcast.history.run_folders import record_rows

    plan = plan_of(count)
    (row,) = overview(plan.cells, plan.expected_s, record_rows(folder))
    return int(row["left"])


def step_resume(folder: Path, count: int) -> int:
    """Resume the campaign up to the first run that would be started."""
    from voxcast.campaigns.driver import run_campaign
    from voxcast.profiling.probes import Probes

    plan = plan_of(count)
    plan = dataclasses.replace(plan, paths={name: Path(__file__) for name in plan.paths})
    return run_campaign(settings_of(folder), plan, probes=Probes(1, 1, 1)).left


def step_summarise(folder: Path, count: int) -> int:
    """Write the table of profiles."""
    from voxcast.history.run_folders import write_profiles

    return count - len(write_profiles(folder))


STEPS = {"list": step_list, "resume": step_resume, "summarise": step_summarise}


def measure(count: int) -> dict[str, Any]:
    """Time each step on ``count`` cells, without and with the index."""
    from voxcast.history.index import index_path

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        make_runs(folder, count)
        figures: dict[str, Any] = {"cells": count}
        for step in STEPS:
            for state in ("first_s", "again_s"):
                if state == "first_s":
                    index_path(folder).unlink(missing_ok=True)
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
