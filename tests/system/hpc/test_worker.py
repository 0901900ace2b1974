"""Workers as real processes: killed, stopped, too small; every cell is on record once."""

import dataclasses
import json
import os
import random
import signal
import time

import pytest

from small_pool import (
    ALLOCATION,
    LADDER,
    PROBES,
    SCRIPT,
    ended,
    forked,
    make_old,
    pool_cell,
    run_worker,
    small_pool,
    wait_for,
)  # fmt: skip
from voxcast.errors import RunError
from voxcast.hpc.attempts import Request
from voxcast.hpc.escalation import Bounds, Ladder
from voxcast.hpc.pool_errors import ErrorLog
from voxcast.hpc.worker_allocation import WorkerAllocation
from voxcast.measure.host import host_class, host_facts
from voxcast.measure.trace import Conditions
from voxcast.runs.series import load_records, read_record
from voxcast.runs.store import collect, load_history


def assert_done_once(pool, count):
    tokens = pool.tokens
    assert tokens.recorded() == pool.cells().keys()
    assert len(tokens.recorded()) == count
    assert tokens.waiting() == tokens.given_up() == {}
    assert tokens.claims() == tokens.commits() == []
    assert list((pool.folder / "partial").iterdir()) == []
    rows = load_records(pool.runs)
    assert len(rows) == count
    assert rows["cell_key"].is_unique
    assert {tokens.record_key(key) for key in tokens.recorded()} == set(rows["cell_key"])


def errors_of(pool, key, attempts):
    return ErrorLog(pool.folder / "errors").of(key, attempts)


def test_a_worker_records_runs_as_a_campaign_does(tmp_path):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(3)))
    summary = run_worker(pool)
    assert (summary.recorded, summary.failed, summary.left) == (3, 0, 0)
    assert_done_once(pool, 3)
    record = read_record(next(pool.runs.glob("[!.]*")))
    assert record.cell.host_class == host_class(host_facts())
    assert record.run.outcome == "completed"
    assert record.content["probes"] == dataclasses.asdict(PROBES)
    assert record.run.sitting == summary.worker
    assert len(collect(pool.runs, tmp_path / "batch")) == 1
    assert load_history([tmp_path / "batch"])["cell_key"].nunique() == 3
    assert pool.add([pool_cell(2), pool_cell(3)]) == 1
    second = run_worker(pool)
    assert second.recorded == 1
    assert second.worker != summary.worker
    assert_done_once(pool, 4)


@pytest.mark.parametrize(
    ("cells", "kills"), [(40, 12), pytest.param(300, 200, marks=pytest.mark.slow)]
)
def test_kills_at_any_moment_lose_and_duplicate_nothing(tmp_path, cells, kills):
    pool = small_pool(
        tmp_path / "pool", *(pool_cell(n, seconds=0.1) for n in range(cells)),
        bounds=Bounds(max_attempts=1000),
    )  # fmt: skip
    chance = random.Random(7)  # noqa: S311
    workers, killed = [], 0
    while len(pool.tokens.recorded()) < cells:
        while len(workers) < 4:
            workers.append(forked(lambda: run_worker(pool)))
        time.sleep(chance.uniform(0.05, 0.5))
        if killed < kills:
            victim = workers.pop(chance.randrange(len(workers)))
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            killed += 1
        else:
            workers = [w for w in workers if os.waitpid(w, os.WNOHANG) == (0, 0)]
    for worker in workers:
        ended(worker)
    for path in pool.workers.glob("*.json"):
        make_old(path)
    run_worker(pool)  # sweeps what the last victims left
    assert_done_once(pool, cells)
    assert killed >= min(kills, 3)


def test_the_claim_of_a_dead_worker_goes_to_another(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell(), stale_s=60.0)
    (key,) = pool.cells()
    dead = pool.tokens.claim(key, 0, "dead~1")
    (pool.workers / "dead.json").write_text("{}")
    (pool.partial(dead.name) / "out").mkdir(parents=True)
    make_old(pool.workers / "dead.json")
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)
    (error,) = errors_of(pool, key, 1)
    assert error.attempt.outcome == "node_failure"
    assert error.worker == "dead"


def test_a_commit_that_was_cut_short_is_finished_by_another(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell(), stale_s=60.0)
    donor = small_pool(tmp_path / "donor", pool_cell())
    run_worker(donor)
    (run,) = donor.runs.glob("[!.]*")
    (key,) = pool.cells()
    claim = pool.tokens.claim(key, 0, "dead~1")
    run.rename(pool.partial(claim.name))
    assert pool.tokens.commit(claim, run.name)
    assert run_worker(pool).recorded == 0
    assert_done_once(pool, 1)


def test_a_worker_that_was_stopped_and_taken_over_records_nothing(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=1.0), stale_s=1.0)
    stopped = forked(lambda: run_worker(pool))
    wait_for(lambda: list((pool.folder / "partial").glob("*/app.log")))
    os.kill(stopped, signal.SIGSTOP)
    (claim,) = pool.tokens.claims()
    make_old(pool.workers / f"{claim.worker}.json")
    assert run_worker(pool).recorded == 1
    before = [(p.name, p.stat().st_mtime_ns) for p in pool.runs.glob("[!.]*/run.json")]
    os.kill(stopped, signal.SIGCONT)
    assert ended(stopped) == 0
    report = json.loads((pool.workers / f"{claim.worker}.json").read_text())["ended"]
    assert (report["recorded"], report["lost"]) == (0, 1)
    assert before == [(p.name, p.stat().st_mtime_ns) for p in pool.runs.glob("[!.]*/run.json")]
    assert_done_once(pool, 1)


def test_a_worker_waits_for_another_that_may_have_died(tmp_path):
    """The last worker must not end just after another has died with a cell."""
    pool = small_pool(tmp_path / "pool", pool_cell(), stale_s=1.0)
    (key,) = pool.cells()
    pool.tokens.claim(key, 0, "dead~1")
    (pool.workers / "dead.json").write_text("{}")  # its last sign of life is from just now
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)


def test_too_little_time_asks_for_more_and_a_larger_worker_takes_it(tmp_path):
    ladder = Ladder((0.2, 5.0), (10**7,), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=1.0, ladder=ladder))
    (key,) = pool.cells()
    summary = run_worker(pool, WorkerAllocation(1, 0, 10**9, time.monotonic() + 0.6))
    assert (summary.recorded, summary.failed, summary.left) == (0, 1, 1)
    (error,) = errors_of(pool, key, 1)
    assert error.attempt.outcome == "timeout"
    assert 0.2 < error.attempt.request.walltime_s < 0.6
    assert error.profile["outcome"] == "timeout"
    short = run_worker(pool, WorkerAllocation(1, 0, 10**9, time.monotonic() + 4.0))
    assert (short.recorded, short.lacking) == (0, {"time": 1})
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)


def test_a_run_at_the_limit_of_the_pool_is_a_lower_bound_on_record(tmp_path):
    conditions = Conditions(time_limit_s=0.3, metronome=False)
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=5.0), conditions=conditions)
    assert run_worker(pool).recorded == 1
    (row,) = load_records(pool.runs).to_dict("records")
    assert (row["outcome"], row["limit_s"]) == ("timeout", 0.3)


def test_too_little_memory_asks_for_more_and_a_larger_worker_takes_it(tmp_path):
    code = "import time; x = bytearray(150_000_000); time.sleep(1)"
    ladder = Ladder((20.0,), (3 * 10**7, 2 * 10**8), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(app=SCRIPT, code=code, ladder=ladder))
    (key,) = pool.cells()
    summary = run_worker(pool, WorkerAllocation(1, 0, 6 * 10**7))
    assert (summary.failed, summary.left, summary.lacking) == (1, 1, {"memory": 1})
    (error,) = errors_of(pool, key, 1)
    assert error.attempt.outcome == "out_of_memory"
    assert error.attempt.request == Request(20.0, 6 * 10**7, 1)
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)


def test_a_run_leaves_room_for_the_files_that_it_maps(tmp_path):
    code = "import time; x = bytearray(150_000_000); time.sleep(1)"
    ladder = Ladder((20.0,), (3 * 10**7, 2 * 10**8), 1)
    cell = pool_cell(app=SCRIPT, code=code, ladder=ladder)
    pool = small_pool(tmp_path / "pool", cell, mapped_files_bytes={"script": 10**8})
    too_small = run_worker(pool, WorkerAllocation(1, 0, 12 * 10**7))
    assert too_small.lacking == {"memory": 1}
    summary = run_worker(pool, WorkerAllocation(1, 0, 2 * 10**8))
    assert (summary.failed, summary.lacking) == (1, {"memory": 1})
    (error,) = errors_of(pool, cell.key, 1)
    assert error.attempt.outcome == "out_of_memory"
    assert error.attempt.request == Request(20.0, 10**8, 1)
    assert run_worker(pool, WorkerAllocation(1, 0, 3 * 10**8)).recorded == 1
    assert_done_once(pool, 1)


def test_an_application_that_fails_is_given_up_and_retried_on_request(tmp_path):
    flag = tmp_path / "mended"
    code = f"import os, sys; print('no AC point'); sys.exit(not os.path.exists({str(flag)!r}))"
    pool = small_pool(tmp_path / "pool", pool_cell(app=SCRIPT, code=code))
    (key,) = pool.cells()
    assert run_worker(pool).failed == 2
    assert pool.tokens.given_up() == {key: 2}
    assert [e.attempt.outcome for e in errors_of(pool, key, 2)] == ["failed", "failed"]
    assert errors_of(pool, key, 2)[0].cause == "failed (no AC point)"
    assert run_worker(pool).failed == 0
    flag.touch()
    assert pool.retry() == 1
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)
    assert len(list((pool.folder / "errors" / "earlier").iterdir())) == 2


def test_an_application_that_only_fails_is_not_run_to_the_end(tmp_path):
    cells = [pool_cell(n, app=SCRIPT, code="raise SystemExit(3)") for n in range(8)]
    pool = small_pool(tmp_path / "pool", *cells, bounds=Bounds(max_failures=1))
    with pytest.raises(RunError, match="script failed on 5 images and never completed"):
        run_worker(pool)
    assert len(pool.tokens.given_up()) == 5
    assert len(pool.tokens.waiting()) == 3
    assert pool.tokens.claims() == []


def test_a_run_that_was_killed_asks_for_more_memory(tmp_path):
    code = "import os; os.kill(os.getpid(), 9)"
    pool = small_pool(
        tmp_path / "pool", pool_cell(app=SCRIPT, code=code), bounds=Bounds(max_attempts=1)
    )
    (key,) = pool.cells()
    run_worker(pool)
    assert errors_of(pool, key, 1)[0].attempt.outcome == "out_of_memory"


def test_cells_that_need_more_cpus_or_a_gpu_are_left_to_others(tmp_path):
    ladder = dataclasses.replace(LADDER, cpus=2)
    pool = small_pool(tmp_path / "pool", pool_cell(0), pool_cell(1, ladder=ladder))
    assert run_worker(pool).lacking == {"CPUs": 1}
    assert run_worker(pool, dataclasses.replace(ALLOCATION, cpus=2)).recorded == 1
    assert_done_once(pool, 2)
