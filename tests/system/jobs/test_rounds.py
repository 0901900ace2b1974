"""Rounds of workers over a pool, on a real Slurm: kills, restarts, and cells that are large."""

import dataclasses
import os
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from private_slurm import PrivateSlurm
from small_pool import SCRIPT, SmallPool, forked, pool_cell, small_pool, wait_for
from voxcast.errors import RunError
from voxcast.jobs.campaign import WorkerJobs, jobs_for
from voxcast.jobs.claim import claimed
from voxcast.jobs.follow import Follower, follow
from voxcast.jobs.slurm import SlurmExecutor
from voxcast.jobs.submission import SlurmOptions
from voxcast.jobs.task import Array, RequestSequence, Task
from voxcast.jobs.worker import HELD
from voxcast.records import Request
from voxcast.runs.store import collect, load_history

pytestmark = pytest.mark.slurm
MB = 10**6
QUICK: dict[str, Any] = {"least_s": 60.0, "max_jobs": 4}
# Holds 300 MB for a second.
HOLDS = "import time; x = bytearray(300_000_000); x[::4096] = b'x' * len(x[::4096]); time.sleep(1)"


def run_passes(pool: SmallPool, partition: str = "debug", **settings: Any) -> int:
    """Follow a pool, and submit its workers; return how many arrays are new."""
    batch, before = pool.folder.parent / "history", pool.state.last_array
    with claimed(pool.folder) as claim:
        submission, most = pool.submission, settings.pop("most", 10)
        follower = Follower(submission, SlurmExecutor(submission), claim)

        def next_jobs(waiting: Mapping[str, Request]) -> WorkerJobs | None:
            sizes = {**QUICK, **settings}
            plan, tasks = submission.plan, follower.state.tasks
            return jobs_for(plan, tasks, waiting, lambda _: partition, **sizes)

        follower.next_jobs, follower.most_passes = next_jobs, most
        follow(follower, 0.5, partial(collect, pool.runs, batch, campaign="small"))
    return follower.state.last_array - before


def naps(count: int, seconds: float) -> list[Task]:
    """Return cells that sleep, and are said to take so long that a round has all its jobs."""
    cell = partial(pool_cell, requests=RequestSequence((20.0,), (20 * MB,), 1), seconds=seconds)
    return [dataclasses.replace(cell(n), expected_s=60.0) for n in range(count)]


def arrays(pool: SmallPool) -> list[Array]:
    return list(pool.state.arrays.values())


def worker_ends(pool: SmallPool) -> list[str]:
    state = pool.state
    return [a.outcome for n in state.ended if n not in state.tasks for a in state.attempts(n)]


def check_each_cell_once(pool: SmallPool, cells: int) -> None:
    assert pool.statuses() == {"completed": cells}
    runs = load_history([pool.folder.parent / "history"])
    assert len(runs) == cells == runs["cell_key"].nunique()
    assert len(list(pool.runs.glob("[!.]*/run.json"))) == cells


def background(pool: SmallPool) -> int:
    return forked(partial(run_passes, pool))


def wait_for_workers(pool: SmallPool, count: int = 1) -> None:
    wait_for(lambda: len(pool.names(HELD)) >= count, 120)


def test_an_array_of_workers_runs_a_pool_and_no_second_one_is_submitted(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cells = naps(40, seconds=0.3)
    pool = small_pool(tmp_path / "a pool $(touch pwned) {x}", *cells)
    assert run_passes(pool) == 1
    check_each_cell_once(pool, 40)
    (array,) = arrays(pool)
    assert len(array.names) == 4
    assert set(worker_ends(pool)) == {"completed"}
    assert run_passes(pool) == 0
    assert not list(tmp_path.rglob("pwned"))


def test_what_needs_more_memory_is_done_by_a_round_of_larger_jobs(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    requests = RequestSequence((20.0,), (100 * MB, 600 * MB), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(1, app=SCRIPT, code=HOLDS, requests=requests))
    assert run_passes(pool) == 2
    check_each_cell_once(pool, 1)
    memories = [array.request.memory_bytes for array in arrays(pool)]
    assert memories[1] - memories[0] == 500 * MB


def test_a_node_is_lost_while_its_worker_runs(slurm: PrivateSlurm, tmp_path: Path) -> None:
    cells = naps(24, seconds=1.0)
    pool = small_pool(tmp_path / "pool", *cells)
    process = background(pool)
    wait_for_workers(pool, 2)
    node = slurm.command("squeue", "-h", "-t", "running", "-o", "%N").stdout.split()[0]
    slurm.kill_node(node)
    slurm.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=crashed")
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    finally:
        slurm.start_daemon(node)
    check_each_cell_once(pool, 24)
    assert "node_failure" in worker_ends(pool)


def test_a_second_submitter_is_refused_and_a_killed_one_is_followed_up(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cells = naps(24, seconds=1.0)
    pool = small_pool(tmp_path / "pool", *cells)
    process = background(pool)
    wait_for_workers(pool)
    with pytest.raises(RunError, match=f"process {process} on .* follows it"):
        run_passes(pool)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert pool.state.live
    assert run_passes(pool) == 0  # the jobs that are there suffice
    check_each_cell_once(pool, 24)
    assert len(arrays(pool)) == 1


def test_a_round_that_is_refused_or_changes_nothing_ends_the_command(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cell = pool_cell(1, requests=RequestSequence((20.0,), (20 * MB,), 1))
    pool = small_pool(tmp_path / "pool", cell)
    with pytest.raises(RunError, match=r"jobs of workers were refused .*choose one that `sinfo"):
        run_passes(pool, partition="nowhere")
    assert cell.cell is not None
    other = Task.of_cell(dataclasses.replace(cell.cell, app_version="2"), cell.requests, 1.0)
    pool = small_pool(tmp_path / "other", other)
    with pytest.raises(RunError, match="ended without having done anything; see what they say"):
        run_passes(pool)
    assert pool.statuses() == {"waiting": 1}


def test_jobs_without_a_cell_leave_the_queue(slurm: PrivateSlurm, tmp_path: Path) -> None:
    cells = naps(8, seconds=1.0)
    pool = small_pool(tmp_path / "pool", *cells, slurm=SlurmOptions(throttle=1))
    run_passes(pool)
    check_each_cell_once(pool, 8)
    wait_for(lambda: not slurm.command("squeue", "-h").stdout.strip(), 60)
    assert not pool.state.live
