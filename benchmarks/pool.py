"""The pool of work: a claim at 64 workers on 10,000 cells, and what a cell costs beside its run.

Claims are those of real processes on the disk of the temporary folder (TMPDIR; set it to a folder
of a shared file system to measure that). Each waits a moment between two claims, as a worker that
runs a cell does. A quarter of the cells and of the workers are measured for comparison. Prints
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CLAIM_BOUND_MS, CELL_BOUND_MS = 5.0, 50.0
PAUSE_S = 0.4  # the longest between two claims of a worker
RUNS = 100


def pool_of(folder: Path, count: int) -> Any:
    """Return a pool of ``count`` cells that end at once."""
    from voxcast.campaigns.settings import Conditions
    from voxcast.hpc.escalation import Ladder
    from voxcast.hpc.pool import PoolSettings, make_pool
    from voxcast.hpc.pool_cells import PoolCell
    from voxcast.records import App, Cell, Configuration

    app = App("nothing", "1", argv=("true",), input="none")
    ladder = Ladder((60.0,), (10**7,), 1)
    configuration = Configuration("cpu", 1)
    cells = (
        PoolCell(Cell("nothing", "1", {}, "", "", configuration, "full_scale", n, ""), ladder, 0.1)
        for n in range(count)
    )
    settings = PoolSettings(
        "bench", {"nothing": app}, {}, str(folder), conditions=Conditions(metronome=False)
    )
    pool = make_pool(folder / "pool", settings)
    pool.add(cells)
    return pool


def claim_all(pool: Any, name: str, report: Path) -> None:
    """Claim cells until none is left; write the seconds that each claim took."""
    from voxcast.hpc.remaining import Remaining

    chance = random.Random(name)  # noqa: S311
    remaining = Remaining(pool, lambda _: True, lambda *_: "")
    start = time.perf_counter()
    remaining.look()
    first_look_s, number, claims_s = time.perf_counter() - start, 0, []
    while True:
        number += 1
        start = time.perf_counter()
        taken = remaining.take(f"{name}~{number}")
        if taken is None and remaining.look():
            taken = remaining.take(f"{name}~{number}")
        took_s = time.perf_counter() - start
        if taken is None:
            break
        claims_s.append(took_s)
        time.sleep(chance.uniform(0, PAUSE_S))
    report.write_text(json.dumps({"first_look_s": first_look_s, "claims_s": claims_s}))


def claims(cells: int, workers: int) -> dict[str, Any]:
    """Time the claims of ``workers`` processes on ``cells`` cells."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        pool = pool_of(Path(name), cells)
        made_s = time.perf_counter() - start
        reports = [Path(name) / f"{n}.json" for n in range(workers)]
        processes = []
        for n, report in enumerate(reports):
            process = os.fork()
            if process == 0:
                claim_all(pool, f"w{n}", report)
                os._exit(0)
            processes.append(process)
        for process in processes:
            os.waitpid(process, 0)
        contents = [json.loads(report.read_text()) for report in reports]
    claims_s = sorted(s for content in contents for s in content["claims_s"])
    if len(claims_s) != cells:
        raise SystemExit(f"{len(claims_s)} claims of {cells} cells")
    return {
        "cells": cells,
        "workers": workers,
        "made_s": made_s,
        "first_look_s": statistics.median(content["first_look_s"] for content in contents),
        "claim_ms": 1e3 * statistics.median(claims_s),
        "claim_95_ms": 1e3 * claims_s[int(0.95 * len(claims_s))],
    }


def cost_per_cell(runs: int) -> dict[str, Any]:
    """Return what one worker needs for a cell beside its run."""
    import numpy as np  # noqa: F401  # what the first run would import
    import pandas as pd  # noqa: F401

    from voxcast.history.run_folders import record_rows
    from voxcast.hpc.worker import work
    from voxcast.hpc.worker_allocation import WorkerAllocation
    from voxcast.profiling.host import host_facts
    from voxcast.profiling.probes import Probes

    with tempfile.TemporaryDirectory() as name:
        pool = pool_of(Path(name), runs)
        start = time.perf_counter()
        allocation, facts = WorkerAllocation(1, 0, 10**9), host_facts()
        summary = work(pool, allocation, facts, probes=Probes(1.0, 1.0, 1.0))
        elapsed_s = time.perf_counter() - start
        run_s = sum(row["runtime_s"] for row in record_rows(pool.runs).values())
        if summary.recorded != runs:
            raise SystemExit(f"{summary.recorded} of {runs} runs recorded")
    return {
        "runs": runs,
        "cell_ms": 1e3 * (elapsed_s - run_s) / runs,
        "run_ms": 1e3 * run_s / runs,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=64)
    args = parser.parse_args()
    few_cells = claims(args.cells // 4, args.workers)
    few_workers = claims(args.cells // 4, max(1, args.workers // 4))
    figures = {
        "claims": claims(args.cells, args.workers),
        "bound_claim_ms": CLAIM_BOUND_MS,
        "claims_with_a_quarter_of_the_cells": few_cells,
        "and_a_quarter_of_the_workers": few_workers,
        "one_cell": cost_per_cell(RUNS),
        "bound_cell_ms": CELL_BOUND_MS,
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
