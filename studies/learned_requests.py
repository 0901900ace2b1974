"""What raising requests while a submission runs is worth, on planted submissions.

A hundred tasks are submitted, ten run at a time, and requests in the queue may be raised. Time is
the median prediction, times one factor for the whole submission (0.2 as standard deviation of its
logarithm, as days differ on record), times one for each task (0.07). The plan requests the 95 %
bound that a calibrated model would state. In the planted cases the model is off as well, a part of
the tasks takes 1.5 to 4 times as long, the first ones take 15 % of the prediction, or some never
end. Intervals are over submissions.

    python studies/learned_requests.py --out results/online/learned.json
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from voxcast.errors import exits_cleanly
from voxcast.files import write_text
from voxcast.jobs.learned import LearnedRequests
from voxcast.jobs.state import EndedAttempt
from voxcast.jobs.task import COST, Attempt, Limits, RequestSequence, Stop, Task, next_request
from voxcast.records import Prediction, Request

TASKS, AT_A_TIME, SUBMISSIONS = 100, 10, 20
TYPICAL_S, SIZES_SD, DAYS_SD, TASKS_SD = 1800.0, 0.5, 0.2, 0.07
NORMAL_95 = 1.645


class Case(NamedTuple):
    """How a submission departs from its predictions: a factor, and shares of its tasks."""

    factor: float = 1.0
    slow: float = 0.0
    quick_first: float = 0.0
    endless: float = 0.0


CASES = {
    "as calibrated": Case(),
    "1.3 times the prediction": Case(1.3),
    "1.6 times the prediction": Case(1.6),
    "2.5 times the prediction": Case(2.5),
    "prediction / 1.6": Case(1 / 1.6),
    "8 % are slow": Case(slow=0.08),
    "the first 40 are quick": Case(quick_first=0.4),
    "3 never end": Case(endless=0.03),
}
POLICIES = ("planned", "learned")


def planted(case: Case, seed: int) -> tuple[list[Task], dict[str, float]]:
    """Return the tasks of a submission, and the time that each takes."""
    rng = np.random.default_rng(seed)
    predicted_s = TYPICAL_S * np.exp(rng.normal(0, SIZES_SD, TASKS))
    day = case.factor * math.exp(rng.normal(0, DAYS_SD))
    taken_s = predicted_s * day * np.exp(rng.normal(0, TASKS_SD, TASKS))
    slow = rng.random(TASKS) < case.slow
    taken_s[slow] *= rng.uniform(1.5, 4, slow.sum())
    taken_s[: round(case.quick_first * TASKS)] *= 0.15
    taken_s[rng.permutation(TASKS)[: round(case.endless * TASKS)]] = math.inf
    bounds_s = predicted_s * math.exp(NORMAL_95 * math.hypot(DAYS_SD, TASKS_SD))
    tasks = [
        Task(
            str(n), "", RequestSequence((bound_s, 1.5 * bound_s, 2.25 * bound_s), (10**9,), 1),
            prediction=Prediction(median_s, bound_s, 1e9, 1e9),
        )
        for n, (median_s, bound_s) in enumerate(zip(predicted_s, bounds_s, strict=True))
    ]  # fmt: skip
    return tasks, {task.name: float(s) for task, s in zip(tasks, taken_s, strict=True)}


def followed(tasks: list[Task], taken_s: dict[str, float], policy: str) -> dict[str, float]:
    """Return kills, hours and makespan of a submission."""
    learner = LearnedRequests(lambda task: task.prediction)
    limits = Limits()
    attempts: dict[str, list[Attempt]] = {task.name: [] for task in tasks}
    queue = deque(tasks)
    running: list[tuple[float, int, float, Request]] = []  # end, task, start
    now_s = requested_s = used_s = 0.0
    while queue or running:
        while queue and len(running) < AT_A_TIME:
            task = queue.popleft()
            request = next_request(task.requests, attempts[task.name], limits)
            if isinstance(request, Stop):
                continue  # given up
            if policy == "learned":
                request = request.at_least(learner.first(task))
            ends_s = now_s + min(request.walltime_s, taken_s[task.name])
            heapq.heappush(running, (ends_s, int(task.name), now_s, request))
        if not running:
            break
        now_s, number, started_s, request = heapq.heappop(running)
        task, runtime_s = tasks[number], now_s - started_s
        is_done = runtime_s >= taken_s[task.name] * (1 - 1e-9)
        attempt = Attempt(request, "completed" if is_done else "timeout", runtime_s)
        attempts[task.name].append(attempt)
        requested_s, used_s = requested_s + request.walltime_s, used_s + runtime_s
        learner.add(task, EndedAttempt(1, 1, attempt, {"memory_sampling_s": None}))
        if not is_done:
            queue.append(task)
    finite_s = [s for s in taken_s.values() if s < math.inf]
    needed_s, count = sum(finite_s), sum(map(len, attempts.values()))
    alpha, beta, gamma = COST
    return {
        "killed": (count - len(tasks)) / len(tasks),
        "requested_over_needed": requested_s / needed_s,
        "cost_over_clairvoyant": (alpha * requested_s + beta * used_s + gamma * count)
        / ((alpha + beta) * needed_s + gamma * len(tasks)),
        "makespan_over_needed": now_s * AT_A_TIME / needed_s,
    }


def study() -> list[dict[str, Any]]:
    """Return a row for each case and policy, with means and 95 % intervals over submissions."""
    rows = []
    for name_of_case, case in CASES.items():
        for policy in POLICIES:
            results = [followed(*planted(case, n), policy) for n in range(SUBMISSIONS)]
            row: dict[str, Any] = {
                "case": name_of_case,
                "policy": policy,
                "submissions": SUBMISSIONS,
            }
            for name in results[0]:
                values = np.array([result[name] for result in results])
                half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
                row[name] = float(values.mean())
                row[f"{name}_interval"] = [row[name] - half, row[name] + half]
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


@exits_cleanly
def main() -> int:
    """Write the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = study()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(args.out, json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
