"""Pools of short runs, and workers as processes of their own."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voxcast.jobs.claim import claimed
from voxcast.jobs.draw import WorkerAllocation, WorkSummary, work
from voxcast.jobs.escalate import Limits, RequestSequence
from voxcast.jobs.pool import (
    ENDED,
    HELD,
    PARTIAL,
    TODO,
    Pool,
    PoolCell,
    PoolSettings,
    make_pool,
)
from voxcast.jobs.settle import Ledger, settle_unfollowed
from voxcast.jobs.submission import read_events
from voxcast.measure.host import HostFacts, Probes, host_facts
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration
from voxcast.runs.series import load_records

PROBES = Probes(1.0, 2.0, 3.0)  # measured once and not for every worker
NAPS = App("naps", "1", argv=("sleep", "{seconds}"), input="none", parameters={"seconds": 0.05})
SCRIPT = App(
    "script", "1", argv=(sys.executable, "-c", "{code}"), input="none", parameters={"code": ""}
)
FOLDS = App(
    "folds", "1", input="none", parameters={"folds": 4, "some": "", "each_s": 0.3},
    split={"count": "folds", "range": "some"},
    argv=(
        sys.executable, "-c",
        "import sys, time; a, _, b = sys.argv[1].partition(':'); "
        "n = int(b) - int(a) if b else int(sys.argv[2]); print(n, 'folds', flush=True); "
        "open(sys.argv[4] + '/folds.txt', 'w').write(str(n)); time.sleep(n * float(sys.argv[3]))",
        "{some}", "{folds}", "{each_s}", "{out}",
    ),
)  # fmt: skip
REQUESTS = RequestSequence((10.0,), (2 * 10**7,), 1)
ALLOCATION = WorkerAllocation(1, 0, 10**9)


def pool_cell(
    repeat: int = 0, app: App = NAPS, requests: RequestSequence = REQUESTS, **parameters: Any
) -> PoolCell:
    chosen = {**app.parameters, **parameters}
    configuration = Configuration("cpu", 1)
    cell = Cell(app.name, "1", chosen, "", "", configuration, "full_scale", repeat, "")
    return PoolCell(cell, requests, 0.05)


def small_pool(folder: Path, *cells: PoolCell, **settings: Any) -> Pool:
    defaults: dict[str, Any] = {
        "conditions": Conditions(metronome=False), "limits": Limits(max_failures=2),
    }  # fmt: skip
    apps = {app.name: app for app in (NAPS, SCRIPT, FOLDS)}
    pool = make_pool(
        folder, PoolSettings("small", apps, {}, str(folder.parent), **{**defaults, **settings})
    )
    add(pool, *cells)
    return pool


def add(pool: Pool, *cells: PoolCell) -> int:
    with claimed(pool.folder) as claim:
        return Ledger(pool, claim).add(cells)


def run_worker(pool: Pool, allocation: WorkerAllocation = ALLOCATION) -> WorkSummary:
    """Run a worker of a pool that nobody follows: it settles what it left itself."""
    return work(pool, allocation, FACTS, probes=PROBES, settle=lambda: settle_unfollowed(pool))


def assert_done_once(pool: Pool, count: int) -> None:
    """Check that each cell is on record once, and has nothing else."""
    ledger = Ledger(pool)
    assert len(ledger.recorded) == count == len(pool.cells())
    assert ledger.recorded.keys() == pool.cells().keys()
    assert not ledger.given_up
    for kind in (TODO, HELD, PARTIAL, ENDED):
        assert pool.names(kind) == []
    rows = load_records(pool.runs)
    assert len(rows) == count
    assert rows["cell_key"].is_unique
    assert set(ledger.recorded.values()) == set(rows["cell_key"])
    events = [event for event in read_events(pool.events) if event["event"] == "recorded"]
    assert len(events) == count


def forked(function: Callable[[], object]) -> int:
    """Run ``function`` in a process of its own; a fork, so that it starts at once."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def wait_for(condition: Callable[[], object], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make_old(path: Path, age_s: float = 10_000.0) -> None:
    """Make a file as old as if its worker had died long ago."""
    os.utime(path, (time.time() - age_s,) * 2)


def _facts() -> HostFacts:
    return host_facts()


FACTS = _facts()
