"""Pools of short runs, and workers as processes of their own."""

import dataclasses
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.errors import RunError
from voxcast.jobs.campaign import work_command, worker_app
from voxcast.jobs.claim import claimed
from voxcast.jobs.follow import Follower
from voxcast.jobs.state import SubmissionState, states_seen, task_rows
from voxcast.jobs.submission import Draw, Plan, SlurmOptions, Submission
from voxcast.jobs.task import Limits, RequestSequence, Task
from voxcast.jobs.worker import (
    DRAW,
    ENDED,
    HELD,
    PARTIAL,
    TODO,
    Tickets,
    WorkerAllocation,
    WorkSummary,
    work,
)
from voxcast.measure.host import HostFacts, host_facts
from voxcast.measure.trace import Conditions
from voxcast.records import App, Cell, Configuration
from voxcast.runs.series import load_records

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
) -> Task:
    chosen = {**app.parameters, **parameters}
    configuration = Configuration("cpu", 1)
    cell = Cell(app.name, "1", chosen, "", "", configuration, "full_scale", repeat, "")
    return Task.of_cell(cell, requests, 0.05)


@dataclass(frozen=True)
class SmallPool:
    """A submission whose tasks workers draw."""

    folder: Path

    @property
    def submission(self) -> Submission:
        return Submission.open(self.folder)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def tickets(self) -> Tickets:
        return Tickets(self.folder / DRAW)

    @property
    def state(self) -> SubmissionState:
        return SubmissionState.of(self.submission.plan, self.submission.events())

    def names(self, kind: str) -> list[str]:
        return self.tickets.names(kind)

    def place(self, kind: str, name: str) -> Path:
        return self.tickets.place(kind, name)

    def draw(self, ticket: str, holder: str) -> str:
        return self.tickets.draw(ticket, holder)

    def statuses(self) -> Counter[str]:
        rows = task_rows(self.submission, self.state, states_seen(self.submission, self.state))
        return Counter(row["status"] for row in rows)

    def ends(self) -> list[dict[str, Any]]:
        """Return the events of attempts that workers left."""
        return [e for e in self.submission.events() if e["event"] == "ended" and "run" in e]

    def failures(self) -> list[dict[str, Any]]:
        return [event for event in self.ends() if not event["record"]]


def small_pool(
    folder: Path, *cells: Task, limits: Limits | None = None, slurm: SlurmOptions | None = None,
    **settings: Any,
) -> SmallPool:  # fmt: skip
    apps = {app.name: app for app in (NAPS, SCRIPT, FOLDS)}
    settings = {"conditions": Conditions(metronome=False), "apps": apps, "paths": {}, **settings}
    draw = Draw(project=str(folder.parent), **settings)
    plan = Plan(
        worker_app("work-small", work_command(folder)), cluster="lab",
        limits=limits or Limits(max_failures=2), slurm=slurm or SlurmOptions(), draw=draw,
    )  # fmt: skip
    Submission.of_workers(folder, plan)
    add(SmallPool(folder), *cells)
    return SmallPool(folder)


def add(pool: SmallPool, *cells: Task) -> int:
    """Add the cells that are not there yet; return their number."""
    plan = pool.submission.plan
    with claimed(pool.folder) as claim:
        submission = Submission.of_workers(pool.folder, dataclasses.replace(plan, tasks=cells))
        Follower(submission, claim=claim).settle()
    return len(submission.plan.tasks) - len(plan.tasks)


def settle(pool: SmallPool) -> bool:
    """Settle what workers left, unless another process follows."""
    try:
        with claimed(pool.folder) as claim:
            return Follower(pool.submission, claim=claim).settle()
    except RunError:
        return False


def work_once(pool: SmallPool, allocation: WorkerAllocation = ALLOCATION) -> WorkSummary:
    submission = Submission.open(pool.folder, with_tasks=False)
    return work(submission, allocation, FACTS)


def run_worker(pool: SmallPool, allocation: WorkerAllocation = ALLOCATION) -> WorkSummary:
    """Run workers one after the other, and settle what each left, until nothing changes."""
    summaries: list[WorkSummary] = []
    while not summaries or settle(pool):
        summaries.append(work_once(pool, allocation))
    return dataclasses.replace(
        summaries[-1], sitting=summaries[0].sitting,
        recorded=sum(s.recorded for s in summaries), failed=sum(s.failed for s in summaries),
    )  # fmt: skip


def assert_done_once(pool: SmallPool, count: int) -> None:
    """Check that each cell is on record once, and has nothing else."""
    state = pool.state
    assert len(state.records) == count == len(state.tasks)
    assert state.records.keys() == state.tasks.keys()
    for kind in (TODO, HELD, PARTIAL, ENDED):
        assert pool.names(kind) == []
    rows = load_records(pool.runs)
    assert len(rows) == count
    assert rows["cell_key"].is_unique
    assert set(state.records.values()) == set(rows["cell_key"])
    assert len([event for event in pool.ends() if event["record"]]) == count


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
