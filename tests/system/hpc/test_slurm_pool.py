"""Passes of workers over a pool, on a real Slurm: kills, restarts, and cells that are large."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm, stopped_daemon
from small_pool import SCRIPT, forked, pool_cell, small_pool, wait_for
from voxcast.errors import RunError
from voxcast.hpc.campaign_pool import pool_state
from voxcast.hpc.escalation import Bounds, Ladder
from voxcast.hpc.memory_counting import memory_counted
from voxcast.hpc.pass_loop import PassSettings, follow_passes
from voxcast.hpc.plan import SlurmOptions
from voxcast.hpc.pool import Pool
from voxcast.hpc.pool_cells import PoolCell
from voxcast.hpc.submission import Submission
from voxcast.hpc.submission_state import SubmissionState
from voxcast.hpc.worker_pass import PASSES, following, open_pass, pass_plan
from voxcast.runs.store import collect, load_history

pytestmark = pytest.mark.slurm
MB = 10**6
QUICK = PassSettings(poll_s=0.5, least_s=60.0, max_jobs=4)
# Holds 300 MB for a second.
HOLDS = "import time; x = bytearray(300_000_000); x[::4096] = b'x' * len(x[::4096]); time.sleep(1)"


def run_passes(pool: Pool, settings: PassSettings = QUICK, partition: str = "debug") -> int:
    batch = pool.folder.parent / "history"
    with following(pool.folder) as claim:
        return follow_passes(
            pool, lambda jobs: pass_plan(pool, jobs, partition, SlurmOptions(), "lab"), claim,
            partial(collect, pool.runs, batch, campaign="small"), settings,
        )  # fmt: skip


def naps(count: int, seconds: float) -> list[PoolCell]:
    """Return cells that sleep, and are said to take so long that a pass has all its jobs."""
    cell = partial(pool_cell, ladder=Ladder((20.0,), (20 * MB,), 1), seconds=seconds)
    return [dataclasses.replace(cell(n), expected_s=60.0) for n in range(count)]


def passes(pool: Pool) -> list[SubmissionState]:
    folders = sorted((pool.folder / PASSES).glob("[0-9]*"))
    submissions = [Submission.open(folder) for folder in folders]
    return [SubmissionState.of(s.plan, s.events()) for s in submissions]


def check_each_cell_once(pool: Pool, cells: int) -> None:
    state = pool_state(pool)
    assert (state.recorded, state.left, state.given_up) == (cells, 0, 0)
    runs = load_history([pool.folder.parent / "history"])
    assert len(runs) == cells == runs["cell_key"].nunique()
    assert len(list(pool.runs.glob("[!.]*/run.json"))) == cells


def background(pool: Pool) -> int:
    return forked(partial(run_passes, pool))


def wait_for_workers(pool: Pool, count: int = 1) -> None:
    wait_for(lambda: len(pool.tokens.claims()) >= count, 120)


def test_an_array_of_workers_runs_a_pool_and_no_second_one_is_submitted(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cells = naps(40, seconds=0.3)
    pool = small_pool(tmp_path / "a pool $(touch pwned) {x}", *cells)
    assert run_passes(pool) == 1
    check_each_cell_once(pool, 40)
    (state,) = passes(pool)
    assert state.last_array == 1
    assert len(state.tasks) == 4
    assert {e.attempt.outcome for ended in state.ended.values() for e in ended} <= {"completed"}
    assert open_pass(pool.folder) is None
    assert run_passes(pool) == 0
    assert not list(tmp_path.rglob("pwned"))


def test_what_asks_for_longer_jobs_is_done_by_the_next_pass(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    short = [pool_cell(n, ladder=Ladder((5.0,), (20 * MB,), 1)) for n in range(10)]
    long = pool_cell(10, seconds=2.0, ladder=Ladder((300.0,), (20 * MB,), 1))
    pool = small_pool(tmp_path / "pool", *short, long)
    assert run_passes(pool) == 2
    check_each_cell_once(pool, 11)
    requests = [state.arrays[1].request.walltime_s for state in passes(pool)]
    assert requests == [65.0, 1200.0]


@pytest.mark.slow
def test_what_outlasts_the_jobs_of_a_pass_is_done_by_the_next(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    ladder = Ladder((5.0, 300.0), (20 * MB,), 1)
    short = [pool_cell(n, ladder=ladder) for n in range(3)]
    pool = small_pool(tmp_path / "pool", *short, pool_cell(9, seconds=125.0, ladder=ladder))
    assert run_passes(pool) == 2  # Slurm makes two minutes of the 65 s of the first
    check_each_cell_once(pool, 4)
    (error,) = (json.loads(p.read_text()) for p in (pool.folder / "errors").glob("*.json"))
    assert error["attempt"]["outcome"] == "timeout"
    requests = [state.arrays[1].request.walltime_s for state in passes(pool)]
    assert requests == [65.0, 1200.0]


def test_what_needs_more_memory_is_done_by_a_pass_of_larger_jobs(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    ladder = Ladder((20.0,), (100 * MB, 600 * MB), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(1, app=SCRIPT, code=HOLDS, ladder=ladder))
    assert run_passes(pool) == 2
    check_each_cell_once(pool, 1)
    memories = [state.arrays[1].request.memory_bytes for state in passes(pool)]
    assert memories[1] - memories[0] == 500 * MB


@pytest.mark.parametrize(("mapped_bytes", "recorded"), [(0, 0), (520 * MB, 1)])
def test_files_that_a_run_maps_count_against_the_job_of_its_worker(
    slurm: PrivateSlurm, tmp_path: Path, mapped_bytes: int, recorded: int
) -> None:
    """The same run in a job with and without room for what Slurm adds up."""
    assert memory_counted() == "rss"
    mapped = tmp_path / "library"
    mapped.write_bytes(bytes(500 * MB))
    code = (
        f"import mmap, time; f = open({str(mapped)!r}, 'rb'); "
        "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); m[::4096]; time.sleep(3)"
    )
    cell = pool_cell(app=SCRIPT, code=code, ladder=Ladder((20.0,), (60 * MB,), 1))
    settings = {"mapped_files_bytes": {"script": mapped_bytes}}
    pool = small_pool(tmp_path / "pool", cell, **settings)
    assert run_passes(pool, dataclasses.replace(QUICK, max_passes=1)) == 1
    assert pool_state(pool).recorded == recorded


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
    ends = [e.attempt.outcome for s in passes(pool) for ended in s.ended.values() for e in ended]
    assert "node_failure" in ends


def test_the_controller_is_restarted_during_a_campaign(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cells = naps(24, seconds=1.0)
    pool = small_pool(tmp_path / "pool", *cells)
    process = background(pool)
    wait_for_workers(pool)
    with stopped_daemon(slurm, "slurmctld"):
        time.sleep(3)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    check_each_cell_once(pool, 24)
    assert len(passes(pool)) == 1


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
    assert open_pass(pool.folder) is not None
    assert run_passes(pool) == 0  # the jobs that are there suffice
    check_each_cell_once(pool, 24)
    assert len(passes(pool)) == 1


def test_a_pass_that_is_refused_or_changes_nothing_ends_the_command(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    cell = pool_cell(1, ladder=Ladder((20.0,), (20 * MB,), 1))
    pool = small_pool(tmp_path / "pool", cell)
    with pytest.raises(RunError, match=r"jobs of a pass were refused .*choose one that `sinfo"):
        run_passes(pool, partition="nowhere")
    other = type(cell)(type(cell.cell)(**{**vars(cell.cell), "app_version": "2"}), cell.ladder, 1)
    pool = small_pool(tmp_path / "other", other)
    with pytest.raises(RunError, match="ended without having run any cell; see what they say"):
        run_passes(pool)
    assert pool_state(pool).waiting == 1


def test_jobs_without_a_cell_leave_the_queue(slurm: PrivateSlurm, tmp_path: Path) -> None:
    cells = naps(8, seconds=1.0)
    pool = small_pool(tmp_path / "pool", *cells, bounds=Bounds(max_failures=2))
    with following(pool.folder) as claim:
        options = SlurmOptions(throttle=1)
        collected: list[Path] = []
        batch = tmp_path / "history"
        follow_passes(
            pool, lambda jobs: pass_plan(pool, jobs, "debug", options), claim,
            lambda: collected.extend(collect(pool.runs, batch)), QUICK,
        )  # fmt: skip
    check_each_cell_once(pool, 8)
    wait_for(lambda: not slurm.command("squeue", "-h").stdout.strip(), 60)
    assert open_pass(pool.folder) is None
