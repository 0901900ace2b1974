"""Each cause leads to its own next request, and everything ends."""

import itertools
import math
from dataclasses import replace

import pytest

from voxcast.jobs.task import Attempt, Limits, RequestSequence, Stop, next_request
from voxcast.records import Request

GB = 10**9
REQUESTS = RequestSequence((600.0, 1800.0), (2 * GB, 4 * GB), cpus=2)
FIRST = Request(600.0, 2 * GB, 2)
LIMITS = Limits(max_walltime_s=3600.0, max_memory_bytes=6 * GB)


def attempts(*outcomes, walltime_s=600.0, memory_bytes=2 * GB, **fields):
    request = Request(walltime_s, memory_bytes, 2)
    return [Attempt(request, outcome, **fields) for outcome in outcomes]


CASES = {
    "nothing was tried": ([], FIRST),
    "completed": (attempts("completed"), Stop(completed=True)),
    "too little time": (attempts("timeout"), replace(FIRST, walltime_s=1800.0)),
    "past the sequence": (
        attempts("timeout", walltime_s=1800.0), replace(FIRST, walltime_s=2700.0),
    ),
    "up to the limit of the partition": (
        attempts("timeout", walltime_s=2700.0), replace(FIRST, walltime_s=3600.0),
    ),
    "at the limit of the partition": (
        attempts("timeout", walltime_s=3600.0), Stop(False, "no request is longer than 1 h 0 min"),
    ),
    "too little memory": (attempts("out_of_memory"), replace(FIRST, memory_bytes=4 * GB)),
    "memory past the sequence": (
        attempts("out_of_memory", memory_bytes=4 * GB), replace(FIRST, memory_bytes=6 * GB),
    ),
    "memory at the limit": (
        attempts("out_of_memory", memory_bytes=6 * GB),
        Stop(False, "no request is larger than 6.00 GB"),
    ),
    "preempted": (attempts("preempted"), FIRST),
    "the node was lost": (attempts("node_failure"), FIRST),
    "the application failed": (attempts("failed"), Stop(False, "the application failed")),
    "it stalled": (attempts("stalled"), FIRST),
    "it stalled again": (
        attempts("stalled", "stalled"), Stop(False, "it did nothing and was stopped 2 times"),
    ),
    "a user cancelled it": (attempts("cancelled"), Stop(False, "it was cancelled by a user")),
    "cancelled after a timeout": (
        attempts("timeout", "cancelled"), Stop(False, "it was cancelled by a user"),
    ),
    "preempted with more time": (
        [*attempts("timeout"), *attempts("preempted", walltime_s=1800.0)],
        replace(FIRST, walltime_s=1800.0),
    ),
    "both were too little": (
        [*attempts("timeout"), *attempts("out_of_memory", walltime_s=1800.0)],
        Request(1800.0, 4 * GB, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cause_decides_the_next_request(case):
    made, expected = CASES[case]
    assert next_request(REQUESTS, made, LIMITS) == expected


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"max_attempts": 2}, "2 attempts were made"),
        ({"max_usd": 3.0}, "its attempts have cost 4 USD"),
    ],
)
def test_attempts_cost_and_time_are_bounded(bounds, reason):
    made = attempts("preempted", "preempted", usd=2.0, runtime_s=3600.0)
    assert next_request(REQUESTS, made, replace(LIMITS, **bounds)) == Stop(False, reason)


def test_every_history_ends():
    # Whatever happens, with any bound left out but that of the attempts.
    outcomes = ("timeout", "out_of_memory", "preempted", "node_failure", "stalled", "failed")
    bounds = Limits(max_attempts=6, max_failures=99, max_stalls=99)
    for fates in itertools.product(outcomes, repeat=6):
        made, request = [], next_request(REQUESTS, [], bounds)
        for fate in fates:
            assert isinstance(request, Request)
            made.append(Attempt(request, fate))
            request = next_request(REQUESTS, made, bounds)
        assert isinstance(request, Stop)
        walltimes = [attempt.request.walltime_s for attempt in made]
        assert walltimes == sorted(walltimes)
        assert math.isfinite(walltimes[-1])
