"""Requests that are learned while a submission runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planted_tasks import MB
from voxcast.jobs.learned import LEAST_RUNS, LearnedRequests
from voxcast.jobs.state import EndedAttempt
from voxcast.jobs.task import Attempt, RequestSequence, Task
from voxcast.records import Outcome, Prediction

PREDICTED = Prediction(600.0, 900.0, 800.0 * MB, 1000.0 * MB, confidence=0.9)


def task_of(name: str, size: float = 1.0, **limits: float) -> Task:
    requests = RequestSequence((1000.0 * size, 2000.0 * size), (1000 * MB,), 1, 0, "debug")
    return Task(name, name, requests, prediction=PREDICTED, **limits)


def ended(
    task: Task, runtime_s: float, outcome: Outcome = "completed", peak: float = 500.0
) -> EndedAttempt:
    facts = {"peak_bytes": peak * MB, "memory_sampling_s": 0.0}
    return EndedAttempt(1, 1, Attempt(task.requests.first, outcome, runtime_s), facts)


def learned_from(*runs: tuple[float, ...]) -> LearnedRequests:
    learned = LearnedRequests(lambda task: task.prediction)
    for n, (runtime_s, *peak) in enumerate(runs):
        task = task_of(f"done {n}")
        learned.add(task, ended(task, runtime_s, "completed", *peak))
    return learned


def test_few_completed_tasks_change_nothing() -> None:
    task = task_of("next")
    learned = learned_from(*[(100.0,)] * (LEAST_RUNS - 1))
    assert learned.sequence(task) == task.requests
    assert LearnedRequests(lambda _: None).sequence(task) == task.requests


def test_requests_follow_what_tasks_needed_relative_to_their_plan() -> None:
    learned = learned_from(*[(300.0 + n, 500.0) for n in range(20)])
    small, large = (learned.sequence(task_of("next", size)) for size in (1.0, 3.0))
    assert 318 <= small.walltimes_s[0] <= 350
    assert large.walltimes_s[0] == pytest.approx(3 * small.walltimes_s[0], abs=3)
    # Half of the predicted bound is half of the planned memory.
    assert 500 * MB <= small.memories_bytes[0] <= 530 * MB
    elsewhere = replace(task_of("next").requests, partition="other")
    assert learned.sequence(replace(task_of("next"), requests=elsewhere)) == elsewhere


def test_the_promised_share_of_tasks_fits_their_first_request() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(20):
        needs = 500 * np.exp(rng.normal(0, 0.3, 80))
        learned = learned_from(*[(float(need),) for need in needs[:40]])
        shares.append(np.mean(needs[40:] <= learned.sequence(task_of("next")).walltimes_s[0]))
    assert 0.88 <= np.mean(shares) <= 0.97


def test_killed_tasks_raise_requests_before_any_has_completed() -> None:
    learned = LearnedRequests(lambda task: task.prediction)
    for n in range(2):
        assert learned.sequence(task_of("next")) == task_of("next").requests
        task = task_of(f"killed {n}")
        learned.add(task, ended(task, 1000.0, "timeout"))
        learned.add(task_of(f"full {n}"), ended(task, 50.0, "out_of_memory"))
    sequence = learned.sequence(task_of("next"))
    assert (sequence.walltimes_s, sequence.memories_bytes) == ((2000.0,), (1500 * MB,))
    within = learned.sequence(task_of("next", max_walltime_s=1200.0, max_memory_bytes=1.1e9))
    assert (within.walltimes_s, within.memories_bytes) == ((1200.0,), (1100 * MB,))


def test_a_task_that_still_runs_needs_more_than_its_time_so_far() -> None:
    learned = learned_from(*[(300.0,)] * 10)
    learned.watch([(task_of("slow"), 800.0), (task_of("new"), 1.0)])
    assert learned.sequence(task_of("next")).walltimes_s[0] >= 880
    learned.watch([])
    assert learned.sequence(task_of("next")).walltimes_s[0] < 400


def test_memory_without_a_bound_or_a_sample_is_not_learned() -> None:
    unknown = replace(PREDICTED, peak_rss_bytes_upper=math.nan)
    learned = LearnedRequests(lambda task: unknown)
    for n in range(10):
        learned.add(task_of(f"done {n}"), ended(task_of("done"), 300.0))
    assert learned.sequence(task_of("next")).memories_bytes == (1000 * MB,)
