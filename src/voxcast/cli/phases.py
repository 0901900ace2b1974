"""``voxcast phases HISTORY``: resources of each phase of an application, and a chain of jobs."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast.errors import TableError
from voxcast.quantities import format_bytes, format_seconds, parse_seconds

if TYPE_CHECKING:
    from voxcast.allocation.requests.phase_chain import Chain, MemoryHeld


def main(argv: list[str]) -> int:
    """Print memory held by run and by phase, and the requests of a chain of jobs."""
    parser = argparse.ArgumentParser(prog="voxcast phases", description=__doc__)
    parser.add_argument(
        "history", type=Path, nargs="+", metavar="HISTORY", help="folders of the history"
    )
    parser.add_argument("--app", help="application (needed if there are several)")
    parser.add_argument("--alpha", type=float, default=1.0, help="price of a requested second (1)")
    parser.add_argument("--beta", type=float, default=0.0, help="price of a used second (0)")
    parser.add_argument("--gamma", type=float, default=0.0, help="price of each request (0)")
    parser.add_argument(
        "--checkpoint", default="0s", metavar="TIME", help="duration of writing a checkpoint (0s)"
    )
    parser.add_argument(
        "--restart", default="0s", metavar="TIME", help="duration of reading a checkpoint (0s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    args = parser.parse_args(argv)

    from voxcast.allocation.requests.cost_model import CostModel
    from voxcast.allocation.requests.phase_chain import PhasedRuns, chain, memory_held
    from voxcast.history.parts import load_history, load_phases, load_traces
    from voxcast.phases.matrix import phase_matrix, used_byte_s

    cost = CostModel(args.alpha, args.beta, args.gamma,
                     parse_seconds(args.checkpoint), parse_seconds(args.restart))  # fmt: skip
    runs = load_history(args.history)
    completed = set(runs.loc[runs["outcome"] == "completed", "cell_key"])
    table = load_phases(args.history)
    table = table[table["cell_key"].isin(completed)]
    apps = sorted(table["app"].unique())
    app: str = args.app or (apps[0] if len(apps) == 1 else "")
    if app not in apps:
        problem = "has no phases" if not apps else f"has phases of {', '.join(apps)}"
        raise TableError(problem, args.history[0], "choose with --app" if apps else None)
    matrix = phase_matrix(table[table["app"] == app])
    if matrix.left_out:
        print(f"voxcast: {matrix.left_out} runs with other phases excluded", file=sys.stderr)
    used = used_byte_s(runs, load_traces(args.history), matrix)
    phased_runs = PhasedRuns(matrix.phases, matrix.duration_s, matrix.peak_bytes, used)
    held, jobs = memory_held(phased_runs), chain(phased_runs, cost)
    if args.json:
        print(
            json.dumps(_as_json(app, len(matrix.cell_keys), held, jobs), indent=2, allow_nan=False)
        )
    else:
        _show(app, len(matrix.cell_keys), held, jobs)
    return 0


def _as_json(app: str, runs: int, held: MemoryHeld, jobs: Chain) -> dict[str, Any]:
    return {
        "app": app,
        "runs": runs,
        "held_gb_h": asdict(held),
        "jobs": [asdict(job) for job in jobs.jobs],
        "one_job": asdict(jobs.single_job),
        "expected_gb_h": jobs.expected_gb_h,
        "gain": jobs.gain,
    }


def _show(app: str, runs: int, held: MemoryHeld, jobs: Chain) -> None:
    used = "" if held.used is None else f", used {held.used:.3g}"
    print(f"{app}: {runs} runs; GB h of one run on average")
    print(
        f"  at the run's peak {held.at_run_peak:.3g}, at the peak of each phase "
        f"{held.at_phase_peaks:.3g}{used}"
    )
    print(f"  {'':14}{'memory':>10}{'expected':>15}  requested walltimes")
    for job in (*jobs.jobs, jobs.single_job):
        walltimes = ", ".join(format_seconds(s) for s in job.walltimes.lengths[:4])
        ellipsis = ", …" if len(job.walltimes.lengths) > 4 else ""
        memory = format_bytes(job.memory_bytes)
        print(
            f"  {job.phase:14}{memory:>10}{job.expected_gb_h:>10.3g} GB h  {walltimes}{ellipsis}"
        )
    expected = f"{jobs.expected_gb_h:.3g} GB h"
    print(f"  expected of the chain: {expected}; a single job holds {jobs.gain:.2f} times as much")
