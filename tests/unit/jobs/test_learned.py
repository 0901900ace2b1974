"""Requests that are raised while a submission runs."""

import math
from dataclasses import replace

import numpy as np

from planted_tasks import MB
from voxcast.jobs.learned import LearnedRequests
from voxcast.jobs.state import EndedAttempt
from voxcast.jobs.task import Attempt, RequestSequence, Task
from voxcast.records import Outcome, Prediction, Request

PREDICTED = Prediction(600.0, 900.0, 800.0 * MB, 1000.0 * MB, confidence=0.9)


def task_of(name: str, size: float = 1.0, **limits: float) -> Task:
    requests = RequestSequence((1000.0 * size, 2000.0 * size), (1000 * MB,), 1, 0, "debug")
    return Task(name, name, requests, prediction=PREDICTED, **limits)


def ended(
    task: Task, runtime_s: float, outcome: Outcome = "completed", peak: float = 500.0,
    request: Request | None = None,
) -> EndedAttempt:  # fmt: skip
    facts = {"peak_bytes": peak * MB, "memory_sampling_s": 0.0}
    attempt = Attempt(request or task.requests.first, outcome, runtime_s)
    return EndedAttempt(1, 1, attempt, facts)


def learner_of(*runtimes_s: float, outcome: Outcome = "completed") -> LearnedRequests:
    learner = LearnedRequests(lambda task: task.prediction)
    for n, runtime_s in enumerate(runtimes_s):
        task = task_of(f"{outcome} {n}")
        learner.add(task, ended(task, runtime_s, outcome))
    return learner


def test_what_fits_its_plan_changes_nothing() -> None:
    task = task_of("next")
    for learner in (learner_of(), learner_of(*[1.0] * 50), learner_of(*[900.0] * 50, 5000.0)):
        assert learner.first(task) == task.requests.first
    assert LearnedRequests(lambda _: None).first(task) == task.requests.first


def test_requests_are_raised_to_what_tasks_needed_relative_to_their_plan() -> None:
    learner = learner_of(*(1300.0 + n for n in range(20)))
    small, large = (learner.first(task_of("next", size)) for size in (1.0, 3.0))
    assert small.walltime_s == 1318.0
    assert large.walltime_s == 3954.0
    assert small.memory_bytes == 1000 * MB
    elsewhere = replace(task_of("next").requests, partition="other")
    assert learner.first(replace(task_of("next"), requests=elsewhere)) == elsewhere.first
    within = task_of("next", max_walltime_s=1200.0)
    assert learner.first(within) == within.requests.first


def test_the_promised_share_of_tasks_fits_their_first_request() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(20):
        needs = 1500 * np.exp(rng.normal(0, 0.3, 80))
        first_s = learner_of(*needs[:40].tolist()).first(task_of("next")).walltime_s
        shares.append(np.mean(needs[40:] <= first_s))
    assert 0.88 <= np.mean(shares) <= 0.97


def test_killed_tasks_raise_requests_only_while_they_are_most() -> None:
    killed = [task_of(f"endless {n}") for n in range(3)]
    learner = LearnedRequests(lambda task: task.prediction)
    for n, task in enumerate(killed):
        assert (learner.first(task_of("next")) == task_of("next").requests.first) == (n < 2)
        learner.add(task, ended(task, 1000.0, "timeout"))
    assert learner.first(task_of("next")).walltime_s == 1500.0
    for n in range(30):
        learner.add(task_of(f"done {n}"), ended(task_of("done"), 600.0))
    assert learner.first(task_of("next")) == task_of("next").requests.first


def test_memory_is_raised_to_no_more_than_an_attempt_was_given() -> None:
    learner = learner_of(5.0, 5.0, outcome="out_of_memory")
    task = task_of("next")
    assert learner.first(task) == task.requests.first  # no node may have as much
    bounded = task_of("next", max_memory_bytes=4e9)
    assert learner.first(bounded).memory_bytes == 1500 * MB
    larger = replace(task.requests.first, memory_bytes=1500 * MB)
    retried = task_of("out_of_memory 0")
    learner.add(retried, ended(retried, 60.0, "completed", 1200.0, larger))
    assert learner.first(task).memory_bytes == 1320 * MB


def test_memory_without_a_bound_is_not_learned() -> None:
    unknown = replace(PREDICTED, peak_rss_bytes_upper=math.nan)
    learner = LearnedRequests(lambda _: unknown)
    for n in range(10):
        learner.add(task_of(f"done {n}"), ended(task_of("done"), 300.0, "completed", 5000.0))
    assert learner.first(task_of("next")).memory_bytes == 1000 * MB
