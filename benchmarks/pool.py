"""The pool of work as it grows: claims, and what a cell costs.

Claims are those of real processes on the disk of the temporary folder (TMPDIR; set it to a folder
of a shared file system to measure that). Each waits a moment between two claims, as a worker that
runs a cell does. On a busy machine a claim waits for its turn: beside each the same process times
a plain rename, which is the least that a claim can be. Prints JSON.

What a cell costs is measured by difference, in rounds, each with its turn of all ways::

    beside_run   time of a worker for a cell less the time of the run on record
    measuring    what the campaign's recorder needs for the same cell beside the run: cgroup,
                 samples, the end of all its processes; the same without a pool
    pool         the rest: draw, sync to disk, record
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import machine

CLAIM_BOUND_MS, CELL_BOUND_MS = 5.0, 50.0
PAUSE_S = 0.4  # the longest between two claims of a worker
MOST_CLAIMS = 40  # of a worker
CELLS, WORKERS = (100, 1_000, 10_000), (1, 8, 64)
ROUNDS, CELLS_A_ROUND = 7, 30


def pool_of(folder: Path, count: int) -> Any:
    """Return a pool of ``count`` cells that end at once."""
    from voxcast.jobs.follow import Follower
    from voxcast.jobs.submission import Draw, Plan, Submission
    from voxcast.jobs.task import RequestSequence, Task
    from voxcast.measure.trace import Conditions
    from voxcast.records import App, Cell, Configuration

    app = App("nothing", "1", argv=("true",), input="none")
    requests = RequestSequence((60.0,), (10**7,), 1)
    configuration = Configuration("cpu", 1)
    cells = (
        Cell("nothing", "1", {}, "", "", configuration, "full_scale", n, "") for n in range(count)
    )
    tasks = tuple(Task.of_cell(cell, requests, 0.1) for cell in cells)
    draw = Draw({"nothing": app}, {}, str(folder), conditions=Conditions(metronome=False))
    submission = Submission.of_workers(folder / "pool", Plan(app, tasks, draw=draw))
    Follower(submission).settle()
    return submission


def claim_some(pool: Any, name: str, report: Path) -> None:
    """Claim cells; write the seconds of each claim and of a rename of another file."""
    from voxcast.jobs.worker import Tickets

    chance, folders = random.Random(name), Tickets.of(pool)  # noqa: S311
    tickets = folders.names("todo")
    chance.shuffle(tickets)
    place, other = pool.folder / "work" / name, pool.folder / "runs" / name
    place.touch()
    claims_s, renames_s = [], []
    for number in range(MOST_CLAIMS):
        start = time.perf_counter()
        taken = False
        while tickets and not taken:
            ticket = tickets.pop()
            if folders.read(ticket) is not None:
                taken = bool(folders.draw(ticket, f"{name}~~{number}"))
        claimed = time.perf_counter()
        place.rename(other)
        renamed = time.perf_counter()
        if not taken:
            break
        place, other = other, place
        claims_s.append(claimed - start)
        renames_s.append(renamed - claimed)
        time.sleep(chance.uniform(0, PAUSE_S))
    report.write_text(json.dumps({"claims_s": claims_s, "renames_s": renames_s}))


def claims(cells: int, workers: int) -> dict[str, Any]:
    """Time the claims of ``workers`` processes on ``cells`` cells."""
    with tempfile.TemporaryDirectory() as name:
        pool = pool_of(Path(name), cells)
        reports = [Path(name) / f"{n}.json" for n in range(workers)]
        processes = []
        for n, report in enumerate(reports):
            process = os.fork()
            if process == 0:
                claim_some(pool, f"w{n}", report)
                os._exit(0)
            processes.append(process)
        for process in processes:
            os.waitpid(process, 0)
        contents = [json.loads(report.read_text()) for report in reports]
        held = len(list((pool.folder / "draw" / "held").iterdir()))
    claims_ms = sorted(1e3 * s for content in contents for s in content["claims_s"])
    renames_ms = sorted(1e3 * s for content in contents for s in content["renames_s"])
    if len(claims_ms) != held:
        raise SystemExit(f"{len(claims_ms)} claims, and {held} cells are claimed")
    return {
        "cells": cells,
        "workers": workers,
        "claims": held,
        "claim_ms": statistics.median(claims_ms),
        "claim_95_ms": claims_ms[int(0.95 * held)],
        "rename_ms": statistics.median(renames_ms),
        "rename_95_ms": renames_ms[int(0.95 * held)],
    }


def cost_of_a_cell() -> dict[str, Any]:
    """Return what a cell costs beside its run, in medians over rounds."""
    import numpy as np  # noqa: F401  # what the first run would import
    import pandas as pd  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    _worked(1)
    rounds = []
    for _ in range(ROUNDS):
        few, many = _worked(1), _worked(1 + CELLS_A_ROUND)
        beside_ms, cpu_ms = (
            1e3 * (many[key] - few[key]) / CELLS_A_ROUND for key in ("beside_s", "cpu_s")
        )
        measuring_ms = 1e3 * _measured(CELLS_A_ROUND, metronome=False)
        rounds.append({
            "run_ms": 1e3 * many["run_s"] / (1 + CELLS_A_ROUND), "worker_start_s": few["beside_s"],
            "beside_run_ms": beside_ms, "cpu_ms": cpu_ms, "measuring_ms": measuring_ms,
            "pool_ms": beside_ms - measuring_ms,
            "measuring_with_metronome_ms": 1e3 * _measured(CELLS_A_ROUND, metronome=True),
        })  # fmt: skip
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    pool_ms = sorted(r["pool_ms"] for r in rounds)
    return {
        "rounds": ROUNDS, "cells_a_round": CELLS_A_ROUND, **medians,
        "pool_ms_least_most": [pool_ms[0], pool_ms[-1]], "load_1_min_after": os.getloadavg()[0],
    }  # fmt: skip


def _worked(count: int) -> dict[str, float]:
    """Have one worker run a pool of ``count`` cells; return its seconds beside the runs."""
    from voxcast.jobs.follow import Follower
    from voxcast.jobs.worker import WorkerAllocation, work
    from voxcast.measure.host import host_facts
    from voxcast.runs.series import runs_in

    with tempfile.TemporaryDirectory() as name:
        pool, facts = pool_of(Path(name), count), host_facts()
        start, used = time.perf_counter(), time.process_time()
        summary = work(pool, WorkerAllocation(1, 0, 10**9), facts)
        Follower(pool).settle()
        elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - used
        run_s = sum(run.runtime_s or 0.0 for run in runs_in(pool.out).values())
        if summary.recorded != count:
            raise SystemExit(f"{summary.recorded} of {count} runs recorded")
    return {"beside_s": elapsed_s - run_s, "cpu_s": cpu_s, "run_s": run_s}


def _measured(count: int, *, metronome: bool) -> float:
    """Return the seconds that measuring a cell takes beside its run, without a pool."""
    from voxcast.measure.host import host_facts
    from voxcast.measure.metronome import Metronome
    from voxcast.measure.record import Recorder, open_sitting

    with tempfile.TemporaryDirectory() as name, Metronome(enabled=metronome) as ticks:
        pool = pool_of(Path(name), 1)
        settings, cell = pool.plan.draw, pool.plan.tasks[0].cell
        sitting = open_sitting(facts=host_facts())
        recorder = Recorder(Path(name), settings.apps, {}, {}, settings.conditions, sitting)
        beside_s = []
        for n in range(1 + count):  # the first starts the metronome
            start = time.perf_counter()
            with recorder.run_folder(Path(name) / f"run-{n}") as partial:
                run, _ = recorder.measure(cell, partial, settings.conditions, metronome=ticks)
                beside_s.append(time.perf_counter() - start - (run.runtime_s or 0.0))
    return statistics.fmean(beside_s[1:])


def main() -> int:
    """Measure and print."""
    figures = {
        "machine": machine(),
        "one_cell": cost_of_a_cell(),
        "bound_cell_ms": CELL_BOUND_MS,
        "claims": [claims(cells, workers) for cells in CELLS for workers in WORKERS],
        "bound_claim_ms": CLAIM_BOUND_MS,
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
