"""What cells and workers ask for, the jobs of a pass, and parts of a cell that is too long."""

import dataclasses
import os
import stat
import time

import pytest

from small_pool import FOLDS, NAPS, add, pool_cell, small_pool
from voxcast.allocation.site import Cluster, NodeType, Partition
from voxcast.errors import ConfigError
from voxcast.jobs.campaign import (
    cluster_limits,
    items,
    jobs_for,
    joined_run,
    largest_machine,
    partition_for,
    parts_of,
    requests_of,
    within_partition,
)
from voxcast.jobs.follow import Follower
from voxcast.jobs.task import Limits, RequestSequence
from voxcast.jobs.worker import (
    MARGIN_S,
    TODO,
    WORKER_BYTES,
    WorkerAllocation,
    job_left_s,
    worker_allocation,
)
from voxcast.measure.host import HostFacts
from voxcast.measure.record import base_of
from voxcast.records import Phase, Request, Run

GB = 10**9
MIB = 2**20


def jobs_of(pool, **settings):
    """Return the jobs of the next pass; None if no cell waits."""
    follower = Follower(pool.submission)
    follower.settle()
    waiting = follower.waiting()
    plan, tasks = pool.submission.plan, follower.state.tasks
    return jobs_for(plan, tasks, waiting, lambda _: "short", **settings)


def cluster():
    thin = NodeType("thin", 16, 64 * GB, partition="short")
    thick = NodeType("thick", 40, 512 * GB, 2, partition="long")
    limits = Partition("short", 3600.0), Partition("long", 7200.0, None, 400 * GB)
    return Cluster("ours", (thin, thick), limits)


def test_the_limits_leave_the_worker_room_in_the_largest_job_of_any_partition():
    limits = cluster_limits(cluster())
    assert limits.max_walltime_s == 7200.0 - 2 * MARGIN_S
    assert limits.max_memory_bytes == 400 * GB - WORKER_BYTES
    machine = largest_machine(cluster())
    assert (machine.cores, machine.memory_bytes, len(machine.gpu_models)) == (40, 512 * GB, 2)


def test_the_first_partition_is_taken_that_takes_a_job():
    small, long = Request(3600.0, GB, 16), Request(3660.0, GB, 16)
    assert partition_for(cluster(), small) == "short"
    assert partition_for(cluster(), long) == "long"
    assert partition_for(cluster(), Request(60.0, GB, 1, gpus=1)) == "long"
    assert partition_for(cluster(), Request(60.0, 65 * GB, 1)) == "long"
    with pytest.raises(ConfigError, match="no partition takes a job of 1 CPU, 401 GB, 1 min"):
        partition_for(cluster(), Request(60.0, 401 * GB, 1))


def test_requests_without_and_with_runs_on_record():
    cell = pool_cell().cell
    limits = Limits(max_walltime_s=7200.0, max_memory_bytes=16 * GB)
    unknown = requests_of(cell, 500.0, [], limits, time_limit_s=6000.0)
    assert unknown.walltimes_s == (1500.0, 5000.0, 6000.0)
    assert unknown.memories_bytes == (2 * GB, 4 * GB, 8 * GB, 16 * GB)
    row = dataclasses.replace(
        base_of(cell), outcome="completed", runtime_s=1000.0, peak_rss_bytes=GB
    )
    others = [
        dataclasses.replace(row, **changes)
        for changes in (
            {"app": "other", "runtime_s": 9e9},
            {"outcome": "timeout"},
            {"cpus": 2, "peak_rss_bytes": 9 * GB},
        )
    ]
    like = requests_of(cell, 500.0, [row, *others], limits, time_limit_s=None)
    assert like.walltimes_s == (1300.0, 2000.0, 4000.0)
    assert like.memories_bytes == (1_300_000_000, 2 * GB, 4 * GB)
    assert requests_of(cell, 1.0, [], limits, None).walltimes_s == (60.0,)


def test_a_round_is_as_large_as_most_cells_need_and_the_next_as_the_rest(tmp_path):
    usual = [pool_cell(n, requests=RequestSequence((1200.0,), (2 * GB,), 1)) for n in range(19)]
    large = pool_cell(app=FOLDS, requests=RequestSequence((1200.0,), (50 * GB,), 4))
    pool = small_pool(tmp_path / "pool with $(spaces)", *usual, large)
    jobs = jobs_of(pool)
    assert 2 * GB < jobs.request.memory_bytes < 3 * GB
    assert jobs.request.walltime_s == 4800.0
    assert (jobs.count, jobs.request.partition) == (1, "short")
    for ticket in pool.names(TODO):
        if large.name not in ticket:
            assert pool.draw(ticket, "w~~1")
    rest = jobs_of(pool)
    assert rest.count == 1
    assert rest.request.memory_bytes > 50 * GB
    assert rest.request.cpus == 4
    (ticket,) = pool.names(TODO)
    assert pool.draw(ticket, "w~~2")
    assert jobs_of(pool) is None


def test_jobs_are_as_many_as_the_expected_time_fills(tmp_path):
    cells = [
        pool_cell(n, app=NAPS, requests=RequestSequence((1800.0,), (GB,), 1)) for n in range(50)
    ]
    pool = small_pool(tmp_path / "pool")
    add(pool, *(dataclasses.replace(cell, expected_s=1700.0) for cell in cells))
    assert jobs_of(pool).count == 15
    assert jobs_of(pool, max_jobs=4).count == 4


def test_jobs_have_room_for_mapped_files_where_these_count(tmp_path):
    counting = dataclasses.replace(cluster(), memory_counted="rss")
    mapped = {app: counting.added_bytes_of(app) for app in ("ants_segment", "naps")}
    assert mapped == {"ants_segment": 160 * MIB, "naps": 224 * MIB}
    assert cluster().added_bytes_of("naps") == 0
    assert dataclasses.replace(counting, mapped_files_bytes=7).added_bytes_of("naps") == 7
    limits = cluster_limits(counting, max(mapped.values()))
    largest = RequestSequence((60.0,), (int(limits.max_memory_bytes),), 1)
    pool = small_pool(
        tmp_path / "pool", pool_cell(requests=largest), limits=limits, mapped_files_bytes=mapped
    )
    assert pool.submission.plan.draw.mapped_files_bytes == mapped
    assert jobs_of(pool).request.memory_bytes == 400 * GB


def test_jobs_without_room_for_a_run_are_refused():
    def largest_job(size):
        short = within_partition(cluster(), "short")
        return dataclasses.replace(short, partitions=(Partition("short", None, None, size),))

    room = 224 * MIB
    assert cluster_limits(largest_job(560 * MIB), room).max_memory_bytes == 16 * MIB
    message = "566 MB: a worker takes 336 MB, mapped files 235 MB; allow larger jobs"
    with pytest.raises(ConfigError, match=message):
        cluster_limits(largest_job(540 * MIB), room)


def test_parts_cover_all_items_once_and_may_be_split_again():
    whole = pool_cell(app=FOLDS, requests=RequestSequence((0.5,), (10**7,), 1), folds=7)
    parts = parts_of(whole, FOLDS, 30.0, 10.0)
    assert [list(items(FOLDS, p.cell.parameters)) for p in parts] == [[0, 1], [2, 3, 4], [5, 6]]
    assert {part.part_of for part in parts} == {whole.name}
    halves = parts_of(parts[1], FOLDS, 10.0, 10.0)
    assert [list(items(FOLDS, p.cell.parameters)) for p in halves] == [[2, 3], [4]]
    assert parts_of(halves[1], FOLDS, 10.0, 10.0) == []
    assert parts_of(pool_cell(), FOLDS, 10.0, 10.0) == []


def test_a_joined_run_sums_times_and_takes_the_largest_memory():
    def part(started, runtime_s, peak, **changes):
        run = Run(
            "", "app", runtime_s=runtime_s, cpu_s=runtime_s / 2, peak_rss_bytes=peak,
            started_at=started, **changes,
        )  # fmt: skip
        return run, (Phase("learn", 0.5, runtime_s),)

    joined, phases = joined_run([
        part("2026-01-02", 3.0, 5, io_read_bytes=1), part("2026-01-01", 2.0, 9, noisy=True),
    ])  # fmt: skip
    assert (joined.runtime_s, joined.cpu_s, joined.peak_rss_bytes) == (5.0, 2.5, 9)
    assert (joined.started_at, joined.noisy, joined.io_read_bytes) == ("2026-01-01", True, None)
    assert [(p.start_s, p.end_s) for p in phases] == [(0.5, 3.0), (3.5, 5.0)]


GIB = 2**30
NODE = HostFacts("CPU", 40, 192 * GIB, ("A100", "A100"), "6.1", "n1")
JOB = {
    "SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "16384",
    "SLURM_GPUS_ON_NODE": "1",
}  # fmt: skip


def test_the_machine_without_a_job():
    allocation = worker_allocation(NODE, {})
    assert (allocation.cpus, allocation.gpus) == (40, 2)
    assert allocation.memory_bytes == 192 * GIB - WORKER_BYTES
    assert allocation.left_s == float("inf")


def test_the_job_of_slurm():
    end = {"SLURM_JOB_END_TIME": str(int(time.time()) + 3600)}
    allocation = worker_allocation(NODE, JOB | end)
    assert (allocation.cpus, allocation.gpus) == (8, 1)
    assert allocation.memory_bytes == 16 * GIB - WORKER_BYTES
    assert 3500 < allocation.left_s < 3600 - 20  # a run ends before the job is killed
    task = {"SLURM_CPUS_PER_TASK": "2", "SLURM_MEM_PER_CPU": "1024"}
    without = {name: value for name, value in JOB.items() if name != "SLURM_MEM_PER_NODE"}
    per_task = worker_allocation(NODE, without | task | end)
    assert (per_task.cpus, per_task.memory_bytes) == (2, 2 * GIB - WORKER_BYTES)
    all_memory = worker_allocation(NODE, JOB | end | {"SLURM_MEM_PER_NODE": "0"})
    assert all_memory.memory_bytes == 192 * GIB - WORKER_BYTES


def test_options_go_before_the_job():
    allocation = worker_allocation(
        NODE, JOB | {"SLURM_JOB_END_TIME": str(int(time.time()) + 7200)},
        cpus=4, memory_bytes=8 * GIB, time_budget_s=3600.0,
    )  # fmt: skip
    assert (allocation.cpus, allocation.memory_bytes) == (4, 8 * GIB - WORKER_BYTES)
    assert allocation.left_s <= 3600


@pytest.mark.parametrize(
    ("answer", "left_s"), [("2:05:00", 7500.0), ("UNLIMITED", None), ("INVALID", None)]
)
def test_an_older_slurm_is_asked_for_the_time_left(tmp_path, monkeypatch, caplog, answer, left_s):
    program = tmp_path / "squeue"
    program.write_text(f'#!/bin/sh\n[ "$3" = 7 ] && echo {answer}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert job_left_s(JOB) == left_s
    assert bool(caplog.messages) == (answer == "INVALID")
    # The last task of an array has the array's own id, by which squeue lists all of its tasks.
    array = {"SLURM_JOB_ID": "5", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}
    program.write_text(f'#!/bin/sh\n[ "$3" = 5_2 ] && echo {answer}\n')
    assert job_left_s(array) == left_s
    assert job_left_s({}) is None


@pytest.mark.parametrize(
    ("changes", "mapped_bytes", "lack"),
    [
        ({}, 0, ""),
        ({"cpus": 3}, 0, "CPUs"),
        ({"memory_bytes": 9 * GIB}, 0, "memory"),
        ({}, 5 * GIB, "memory"),
        ({"walltime_s": 700.0}, 0, "time"),
        ({"gpus": 1, "device": "gpu"}, 0, "GPUs"),
    ],
)
def test_what_a_run_lacks(changes, mapped_bytes, lack):
    allocation = WorkerAllocation(2, 0, 8 * GIB, time.monotonic() + 600)
    request = dataclasses.replace(Request(500.0, 4 * GIB, 2), **changes)
    assert allocation.shortfall(request, mapped_bytes) == lack
