"""``voxcast phases chain``: memory by phase of runs on record, and requests of a chain of jobs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from voxcast.cli import options
from voxcast.errors import TableError
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    import pandas as pd

    from voxcast.allocation.requests.chain import Chain, MemoryHeld
    from voxcast.phases.logged import PhaseMatrix

PRINTED_WALLTIMES = 4


def chain(
    histories: options.Histories,
    app_name: options.App = None,
    where: options.Where = None,
    prices: Annotated[
        str,
        Option("--cost", metavar="A,B,C", help="Prices of requested time, used time, request."),
    ] = "1,0,0",
    checkpoint: Annotated[
        str | None,
        Option("--checkpoint", metavar="WRITE,RESTART", help="Durations, such as 30s,10s."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Show memory held by run and by phase, and the requests of a chain of jobs, one a phase."""
    durations = (0.0, 0.0) if checkpoint is None else options.durations(checkpoint, "--checkpoint")
    from voxcast.allocation.requests import chain as chains
    from voxcast.allocation.requests.cost import CostModel
    from voxcast.phases.events import holds_trace
    from voxcast.phases.logged import phase_matrix, used_byte_s
    from voxcast.runs.store import open_history
    from voxcast.runs.table import only_app, runs_where

    alpha, beta, gamma = options.numbers(prices, 3, "--cost")
    cost = CostModel(alpha, beta, gamma, *durations)
    if holds_trace(histories[0]):
        then = f"see it with `voxcast phases show {histories[0]}`"
        raise TableError("is a trace, not a history of runs", histories[0], then)
    history = open_history(histories)
    runs = runs_where(history.runs, where or [])
    with_phases = {*history.phases["cell_key"], *history.traces["cell_key"]} & set(
        runs["cell_key"]
    )
    if not with_phases:
        then = "measure runs of the application, or import runs with phases"
        raise TableError("has no phases, nor traces to read them from", histories[0], then)
    apps = runs.loc[runs["cell_key"].isin(with_phases), "app"]
    app = only_app(set(apps), app_name, histories[0])
    of_app = runs[runs["app"] == app]
    keys = set(of_app["cell_key"])
    phases, traces = (
        table[table["cell_key"].isin(keys)] for table in (history.phases, history.traces)
    )
    if not len(phases):
        phases = _read_from(of_app, traces)
    matrix = phase_matrix(of_app, phases, traces)
    used = used_byte_s(of_app, traces, matrix)
    kept_s = of_app.loc[of_app["cell_key"].isin(set(matrix.cell_keys)), "runtime_s"].median()
    if matrix.left_out:
        causes = ", ".join(f"{count} {cause}" for cause, count in matrix.left_out.items())
        print(
            f"voxcast: {sum(matrix.left_out.values())} of {len(of_app)} runs left out: {causes}; "
            f"median runtime {format_seconds(kept_s)} of those used, "
            f"{format_seconds(of_app['runtime_s'].median())} of all",
            file=sys.stderr,
        )
    phased_runs = chains.PhasedRuns(matrix.phases, matrix.duration_s, matrix.peak_bytes, used)
    held, jobs = chains.memory_held(phased_runs), chains.chain(phased_runs, cost)
    if as_json:
        content = _as_json(app, matrix, float(kept_s), held, jobs)
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _show(app, matrix, held, jobs)
    return 0


def _read_from(runs: pd.DataFrame, traces: pd.DataFrame) -> pd.DataFrame:
    """Return phases read from the traces of runs that logged none; stderr says of how many."""
    from voxcast.phases.segments import segmented_runs

    segmented = segmented_runs(runs, traces)
    read = counted(segmented.phases["cell_key"].nunique(), "run")
    causes = "".join(f"; {count} {cause}" for cause, count in segmented.left_out.items())
    print(
        f"voxcast: no run logged phases: change points in the traces of {read}{causes}",
        file=sys.stderr,
    )
    return segmented.phases


def _as_json(
    app: str, matrix: PhaseMatrix, median_runtime_s: float, held: MemoryHeld, jobs: Chain
) -> dict[str, Any]:
    return {
        "app": app,
        "runs": len(matrix.cell_keys),
        "median_runtime_s": median_runtime_s,
        "left_out": dict(matrix.left_out),
        "read_at_ends": dict(matrix.read_at_ends),
        "held_gb_h": asdict(held),
        "jobs": [asdict(job) for job in jobs.jobs],
        "one_job": asdict(jobs.single_job),
        "expected_gb_h": jobs.expected_gb_h,
        "gain": jobs.gain,
    }


def _show(app: str, matrix: PhaseMatrix, held: MemoryHeld, jobs: Chain) -> None:
    used = "" if held.used is None else f", used {held.used:.3g}"
    runs = len(matrix.cell_keys)
    print(f"{app}: {runs} runs; memory held by one run on average, in GB h")
    print(
        f"  requested at the run's peak {held.at_run_peak:.3g}, at the peak of each phase "
        f"{held.at_phase_peaks:.3g}{used}"
    )
    rows = [("job", "memory", "expected GB h", "requested walltimes")]
    for job in (*jobs.jobs, jobs.single_job):
        lengths = job.walltimes.lengths
        walltimes = [format_seconds(s) for s in lengths[:PRINTED_WALLTIMES]]
        walltimes += ["…"] * (len(lengths) > PRINTED_WALLTIMES)
        memory = format_bytes(job.memory_bytes)
        rows.append((job.phase, memory, f"{job.expected_gb_h:.3g}", ", ".join(walltimes)))
    print(text_table(rows, "<>><", indent="  "))
    if matrix.read_at_ends:
        listed = ", ".join(f"{phase} {n}" for phase, n in matrix.read_at_ends.items())
        print(f"  memory read at the ends of a phase, as no sample lies in it; runs: {listed}")
    expected = f"{jobs.expected_gb_h:.3g} GB h"
    print(
        f"  a chain of jobs, one for each phase, is expected to hold {expected}; "
        f"a single job holds {jobs.gain:.2f} times as much"
    )
