"""What a worker may use, by options, Slurm's variables, and the machine."""

import dataclasses
import os
import stat
import time

import pytest

from voxcast.jobs.worker import WORKER_BYTES, WorkerAllocation, job_left_s, worker_allocation
from voxcast.measure.host import HostFacts
from voxcast.records import Request

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
