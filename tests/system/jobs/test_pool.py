"""Pools and their workers: killed, stopped, too small; every cell is on record once."""

import dataclasses
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time

import pytest

from small_disk import mounted, remount
from small_pool import (
    FOLDS,
    NAPS,
    SCRIPT,
    add,
    assert_done_once,
    ended,
    forked,
    make_old,
    pool_cell,
    run_worker,
    settle,
    small_pool,
    wait_for,
    work_once,
)
from voxcast.errors import ConfigError, RunError
from voxcast.jobs.claim import CLAIM_FILE, claimed
from voxcast.jobs.follow import Follower
from voxcast.jobs.submission import Submission
from voxcast.jobs.task import Attempt, Limits, RequestSequence, Task
from voxcast.jobs.worker import ENDED, HELD, PARTIAL, TODO, WorkerAllocation, key_of
from voxcast.measure.host import host_class, host_facts
from voxcast.measure.trace import Conditions
from voxcast.records import Request, as_fields
from voxcast.runs.series import load_records, read_record
from voxcast.runs.store import collect, load_history


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "version None, not 4"),
        ('{"voxcast_plan": 99, "voxcast_version": "9.0"}', "99, not 4.*made by voxcast 9.0"),
        ('{"voxcast_plan": 4}', "app is missing"),
    ],
)  # fmt: skip
def test_a_damaged_pool_or_one_of_another_release_says_so(tmp_path, content, problem):
    pool = small_pool(tmp_path / "pool")
    (pool.folder / "submission.json").write_text(content)
    for call in (lambda: pool.submission, lambda: small_pool(pool.folder)):
        with pytest.raises(ConfigError, match=problem):
            call()


def test_a_ticket_that_a_crash_left_empty_is_made_again(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell())
    (name,) = pool.names(TODO)
    pool.place(TODO, name).write_text("")
    assert run_worker(pool).recorded == 1


@pytest.mark.parametrize(
    ("cells", "workers"), [(500, 16), pytest.param(10_000, 64, marks=pytest.mark.slow)]
)
def test_every_ticket_is_drawn_by_one_worker(tmp_path, cells, workers):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(cells)))
    reports = [tmp_path / f"{n}.json" for n in range(workers)]
    each_holds_one = multiprocessing.get_context("fork").Barrier(workers)

    def draw(number):
        names = sorted(pool.names(TODO))
        start = number * len(names) // workers // 4  # all want the same ones, in about one order
        drawn = []
        for name in names[start:] + names[:start]:
            if pool.draw(name, f"w{number}~~1"):
                drawn.append(name)
                if len(drawn) == 1:
                    each_holds_one.wait(60)
        reports[number].write_text(json.dumps(drawn))

    processes = [forked(lambda n=n: draw(n)) for n in range(workers)]
    assert {ended(process) for process in processes} == {0}
    drawn = [json.loads(report.read_text()) for report in reports]
    tickets = sorted(name for names in drawn for name in names)
    assert tickets == sorted(set(tickets))
    assert sorted(map(key_of, tickets)) == sorted(pool.state.tasks)
    assert len(pool.names(HELD)) == cells
    assert all(drawn)


def test_a_lost_answer_of_a_rename_is_no_refusal(tmp_path):
    """NFS repeats the request: the ticket is at the target already, and not at its source."""
    pool = small_pool(tmp_path / "pool", pool_cell())
    (name,) = pool.names(TODO)
    assert pool.draw(name, "w~~1") == pool.draw(name, "w~~1") == f"{name}~w~~1"
    assert pool.draw(name, "w~~2") == ""


def of_volume(name):
    cell = dataclasses.replace(pool_cell().cell, volume_id=name, app="reads")
    return Task.of_cell(cell, pool_cell().requests, 0.1)


def volume_pool(tmp_path, names):
    app = dataclasses.replace(NAPS, name="reads", argv=("cat", "{image}"), input="volume")
    paths = {n: str(tmp_path / f"{n}.nii") for n in names}
    return small_pool(
        tmp_path / "pool", *map(of_volume, names), apps={"reads": app}, paths=paths
    )  # fmt: skip


def test_a_missing_volume_is_left_out_and_missing_folders_end_the_worker(tmp_path, caplog):
    pool = volume_pool(tmp_path, "abcdefg")
    with pytest.raises(RunError, match=r"\.nii: no such volume"):
        run_worker(pool)
    assert len(pool.names(TODO)) == 7
    for name in "abcdef":
        (tmp_path / f"{name}.nii").write_text("x")
    summary = work_once(pool)
    assert (summary.recorded, summary.left, summary.lacking) == (6, 1, {"its volume": 1})
    assert "g.nii: no such volume" in caplog.text


def test_another_version_of_an_application_is_not_run(tmp_path):
    other = dataclasses.replace(pool_cell().cell, app_version="2")
    pool = small_pool(tmp_path / "pool", Task.of_cell(other, pool_cell().requests, 0.1))
    with pytest.raises(RunError, match="naps: is version 1 here; install 2 here"):
        run_worker(pool)
    assert len(pool.names(TODO)) == 1


def test_a_read_only_folder_is_one_line(tmp_path):
    with mounted(tmp_path / "disk") as disk:
        pool = small_pool(disk / "pool", pool_cell())
        remount(disk, "ro")
        with pytest.raises(RunError, match="cannot be written to; a worker needs to write there"):
            run_worker(pool)
        remount(disk, "rw")
        assert run_worker(pool).recorded == 1


def outcomes(pool):
    return [event["attempt"]["outcome"] for event in pool.failures()]


def test_a_worker_records_runs_as_a_campaign_does(tmp_path):
    pool = small_pool(tmp_path / "pool", *map(pool_cell, range(3)))
    summary = run_worker(pool)
    assert (summary.recorded, summary.failed, summary.left) == (3, 0, 0)
    assert_done_once(pool, 3)
    record = read_record(next(pool.runs.glob("[!.]*")))
    assert record.cell.host_class == host_class(host_facts())
    assert record.run.outcome == "completed"
    assert record.run.sitting == summary.sitting
    assert len(collect(pool.runs, tmp_path / "batch")) == 1
    assert load_history([tmp_path / "batch"])["cell_key"].nunique() == 3
    assert add(pool, pool_cell(2), pool_cell(3)) == 1
    second = run_worker(pool)
    assert second.recorded == 1
    assert second.sitting != summary.sitting
    assert_done_once(pool, 4)


def follow(pool):
    """Settle what workers leave, as a process that follows the pool, until it is killed."""
    while True:
        try:
            with claimed(pool.folder) as claim:
                follower = Follower(pool.submission, claim=claim)
                while True:
                    follower.step()
                    time.sleep(0.01)
        except RunError:
            time.sleep(0.05)


def kill(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.mark.parametrize(
    ("cells", "kills"), [(40, 12), pytest.param(300, 200, marks=pytest.mark.slow)]
)
def test_kills_at_any_moment_lose_and_duplicate_nothing(tmp_path, cells, kills):
    """Also of the process that follows the pool."""
    pool = small_pool(
        tmp_path / "pool", *(pool_cell(n, seconds=0.1) for n in range(cells)),
        limits=Limits(max_attempts=1000),
    )  # fmt: skip
    chance = random.Random(7)  # noqa: S311
    follower, workers, killed = forked(lambda: follow(pool)), [], 0
    while len(pool.state.records) < cells:
        while len(workers) < 4:
            workers.append(forked(lambda: run_worker(pool)))
        time.sleep(chance.uniform(0.05, 0.5))
        if killed >= kills:
            workers = [w for w in workers if os.waitpid(w, os.WNOHANG) == (0, 0)]
        elif chance.random() < 0.3:
            kill(follower)
            follower = forked(lambda: follow(pool))
            killed += 1
        else:
            kill(workers.pop(chance.randrange(len(workers))))
            killed += 1
    for process in (follower, *workers):
        kill(process)
    run_worker(pool)  # settles what the last victims left
    assert_done_once(pool, cells)
    assert killed >= min(kills, 3)


def drawn(pool, worker="elsewhere", job=""):
    """Return a run that a worker on another machine has drawn."""
    (ticket,) = pool.names(TODO)
    run = pool.draw(ticket, f"{worker}~{job}~1")
    assert run
    return run


def test_a_worker_that_was_stopped_and_given_up_records_nothing(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=1.0))
    stopped = forked(lambda: run_worker(pool))
    wait_for(lambda: list((pool.tickets.folder / PARTIAL).glob("*/app.log")))
    os.kill(stopped, signal.SIGSTOP)
    (run,) = pool.names(HELD)
    make_old(pool.place(HELD, run))
    assert run_worker(pool).recorded == 1
    before = [(p.name, p.stat().st_mtime_ns) for p in pool.runs.glob("[!.]*/run.json")]
    os.kill(stopped, signal.SIGCONT)
    assert ended(stopped) == 0
    run_worker(pool)
    assert before == [(p.name, p.stat().st_mtime_ns) for p in pool.runs.glob("[!.]*/run.json")]
    assert_done_once(pool, 1)
    assert outcomes(pool) == ["node_failure"]


def test_a_worker_that_was_given_up_draws_nothing_more(tmp_path):
    """Slurm may take its node for dead: whatever it drew next would be lost as well."""
    pool = small_pool(tmp_path / "pool", *(pool_cell(n, seconds=0.5) for n in range(3)))
    worker = forked(lambda: work_once(pool))
    wait_for(lambda: list((pool.tickets.folder / PARTIAL).glob("*/app.log")))
    (run,) = pool.names(HELD)
    pool.place(HELD, run).unlink()  # as the follower does when accounting has ended its job
    shutil.rmtree(pool.place(PARTIAL, run))
    assert ended(worker) == 0
    assert (len(pool.names(TODO)), pool.names(HELD), pool.names(ENDED)) == (2, [], [])
    assert run_worker(pool).recorded == 3
    assert_done_once(pool, 3)


def test_the_memory_of_a_job_that_was_too_small_is_requested_again(tmp_path):
    requests = RequestSequence((10.0,), (2 * 10**7, 4 * 10**7), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(requests=requests))
    run = drawn(pool, job="7_3")
    attempt = as_fields(Attempt(Request(10.0, 10**9, 1), "out_of_memory"))

    def job_ended(number):
        pool.submission.record({
            "event": "ended", "task": f"worker-0001-{number}", "array": 1, "number": number,
            "attempt": attempt, "facts": {"job": "7"},
        })  # fmt: skip
        return settle(pool)

    assert not job_ended(4)
    assert pool.names(HELD) == [run]
    assert job_ended(3)
    assert outcomes(pool) == ["out_of_memory"]
    (ticket,) = pool.names(TODO)
    assert pool.tickets.read(ticket)[1].memory_bytes == 4 * 10**7


def test_too_little_time_asks_for_more_and_a_larger_worker_takes_it(tmp_path):
    requests = RequestSequence((0.2, 50.0), (10**7,), 1)
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=3.0, requests=requests))
    summary = run_worker(pool, WorkerAllocation(1, 0, 10**9, time.monotonic() + 2.0))
    assert (summary.recorded, summary.failed, summary.left) == (0, 1, 1)
    (failure,) = pool.failures()
    assert failure["attempt"]["outcome"] == "timeout"
    assert 0.2 < failure["attempt"]["request"]["walltime_s"] < 2.0
    short = run_worker(pool, WorkerAllocation(1, 0, 10**9, time.monotonic() + 40.0))
    assert (short.recorded, short.lacking) == (0, {"time": 1})
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)


def test_a_run_at_the_limit_of_the_pool_is_a_lower_bound_on_record(tmp_path):
    conditions = Conditions(time_limit_s=0.3, metronome=False)
    pool = small_pool(tmp_path / "pool", pool_cell(seconds=5.0), conditions=conditions)
    assert run_worker(pool).recorded == 1
    (row,) = load_records(pool.runs).to_dict("records")
    assert (row["outcome"], row["limit_s"]) == ("timeout", 0.3)


@pytest.mark.parametrize("mapped", [0, 10**8])
def test_too_little_memory_asks_for_more_and_a_larger_worker_takes_it(tmp_path, mapped):
    """Memory of files that a run maps is left free beside it."""
    code = "import time; x = bytearray(150_000_000); time.sleep(1)"
    requests = RequestSequence((20.0,), (3 * 10**7, 2 * 10**8), 1)
    cell = pool_cell(app=SCRIPT, code=code, requests=requests)
    pool = small_pool(tmp_path / "pool", cell, mapped_files_bytes={"script": mapped})
    too_small = run_worker(pool, WorkerAllocation(1, 0, mapped + 2 * 10**7))
    assert too_small.lacking == {"memory": 1}
    summary = run_worker(pool, WorkerAllocation(1, 0, mapped + 6 * 10**7))
    assert (summary.failed, summary.left, summary.lacking) == (1, 1, {"memory": 1})
    attempt = pool.state.attempts(cell.name)[0]
    assert (attempt.outcome, attempt.request) == ("out_of_memory", Request(20.0, 6 * 10**7, 1))
    assert run_worker(pool, WorkerAllocation(1, 0, mapped + 3 * 10**8)).recorded == 1
    assert_done_once(pool, 1)


def test_an_application_that_fails_is_given_up_and_retried_on_request(tmp_path):
    flag = tmp_path / "mended"
    code = f"import os, sys; print('no AC point'); sys.exit(not os.path.exists({str(flag)!r}))"
    pool = small_pool(tmp_path / "pool", pool_cell(app=SCRIPT, code=code))
    assert run_worker(pool).failed == 2
    assert pool.statuses() == {"given up": 1}
    assert outcomes(pool) == ["failed", "failed"]
    assert pool.failures()[0]["facts"]["cause"] == "failed (no AC point)"
    assert run_worker(pool).failed == 0
    flag.touch()
    with claimed(pool.folder) as claim:
        follower = Follower(pool.submission, claim=claim)
        assert follower.retry() == 1
        follower.settle()
    assert run_worker(pool).recorded == 1
    assert_done_once(pool, 1)


def test_an_application_that_only_fails_is_not_run_to_the_end(tmp_path):
    cells = [pool_cell(n, app=SCRIPT, code="raise SystemExit(3)") for n in range(8)]
    pool = small_pool(tmp_path / "pool", *cells, limits=Limits(max_failures=1))
    with pytest.raises(RunError, match="script failed on 5 images and never completed"):
        run_worker(pool)
    assert len(pool.names(ENDED)) == 5
    assert len(pool.names(TODO)) == 3
    assert pool.names(HELD) == []


def end_too_late(pool, cell):
    """Record an attempt on a cell that had all the time that there is."""
    attempt = Attempt(Request(1.0, 10**7, 1), "timeout", 1.0)
    pool.submission.record({
        "event": "ended", "task": cell.name, "run": "before", "record": "",
        "attempt": as_fields(attempt), "facts": {},
    })  # fmt: skip


def test_a_cell_that_is_too_long_goes_in_parts_and_joins(tmp_path):
    cell = pool_cell(app=FOLDS, requests=RequestSequence((1.0,), (10**7,), 1), each_s=0.05)
    pool = small_pool(tmp_path / "pool", cell, limits=Limits(max_walltime_s=1.0))
    pool.place(TODO, pool.names(TODO)[0]).unlink()
    end_too_late(pool, cell)
    assert run_worker(pool).recorded == 2
    assert_joined_once(pool, cell)


def assert_joined_once(pool, cell):
    for kind in (TODO, HELD, PARTIAL, ENDED):
        assert pool.names(kind) == []
    assert pool.statuses() == {"completed": 1}
    (row,) = load_records(pool.runs).to_dict("records")  # the parts are no runs of the history
    assert (row["outcome"], row["cell_key"]) == ("completed", pool.state.records[cell.name])
    record = read_record(pool.runs / row["cell_key"])
    assert dataclasses.replace(record.cell, host_class="") == cell.cell
    names = record.content["parts"]
    parts = [read_record(pool.folder / "part_runs" / name).run for name in names]
    assert record.run.runtime_s == pytest.approx(sum(part.runtime_s for part in parts))
    assert record.run.peak_rss_bytes == max(part.peak_rss_bytes or 0 for part in parts)
    folds = [int(p.read_text()) for p in (pool.runs / row["cell_key"]).rglob("folds.txt")]
    assert sum(folds) == 4


CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


def crash_at(count, folder):
    """End this process before its operation number ``count`` that changes files of a folder."""
    left = itertools.count(count, -1)

    def before(event, arguments):
        if event not in CHANGES or str(folder) not in str(arguments[0]):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        if next(left) == 0:
            os._exit(77)

    sys.addaudithook(before)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_before_any_file_operation_loses_and_duplicates_nothing(tmp_path, step):
    """A worker that settles as well: it records a run, splits another, and joins its parts."""
    requests = RequestSequence((1.0,), (10**7,), 1)
    cells = pool_cell(), pool_cell(app=FOLDS, requests=requests, each_s=0.0)
    for number in itertools.count(0, step):
        pool = small_pool(tmp_path / f"{number}", limits=Limits(max_walltime_s=1.0))
        Submission.of_workers(pool.folder, dataclasses.replace(pool.submission.plan, tasks=cells))
        end_too_late(pool, cells[1])

        def crashing(pool=pool, number=number):
            crash_at(number, pool.folder)
            run_worker(pool)

        crashed = ended(forked(crashing))
        assert crashed in (0, 77)
        run_worker(pool)
        state = pool.state
        whole = {cell.name for cell in cells}
        assert state.records.keys() == whole | set(state.parts[cells[1].name])
        for kind in (TODO, HELD, PARTIAL, ENDED):
            assert pool.names(kind) == [], (number, kind)
        assert len(load_records(pool.runs)) == 2
        recorded = [event["task"] for event in pool.ends() if event["record"]]
        assert len(recorded) == len(set(recorded)) == 4
        if not crashed:
            break
        shutil.rmtree(pool.folder)
    assert number > 50


def test_a_second_follower_is_refused(tmp_path):
    pool = small_pool(tmp_path / "pool", pool_cell())
    with claimed(pool.folder) as claim:
        follower = Follower(pool.submission, claim=claim)
        run_worker(pool)
        assert len(pool.names(ENDED)) == 1
        (pool.folder / CLAIM_FILE).write_text("other")
        with pytest.raises(RunError, match="another process follows it now"):
            follower.settle()
    assert pool.names(ENDED)
    (pool.folder / CLAIM_FILE).unlink()
    run_worker(pool)
    assert_done_once(pool, 1)
