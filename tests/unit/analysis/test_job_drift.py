"""Drift of jobs: counts with known answers, the rate of false alarms, and coverage by month."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from recorded_jobs import job_row, measured_row
from voxcast.analysis.job_drift import (
    bounds,
    feature_shifts,
    last_jobs,
    medians,
    monthly_coverage,
)
from voxcast.runs.table import frame_of


def job(n: int, *, outcome: str = "completed", runtime_s: float = 10.0, **labels: object) -> dict:
    prediction = {
        "predicted_runtime_s": 10.0, "upper_runtime_s": 15.0, "confidence": 0.95,
        "submission": "s", "task": f"t{n}",
    }  # fmt: skip
    return {
        "cell_key": f"{n}-{outcome}", "app": "tool", "subject": f"{n:03}", "outcome": outcome,
        "runtime_s": runtime_s, "peak_rss_bytes": None, "sitting": "",
        "started_at": f"2026-01-01T00:{n:02}:00+00:00",
        "labels_json": json.dumps(prediction | labels),
    }  # fmt: skip


def test_jobs_above_their_bound_are_counted_whatever_became_of_them() -> None:
    rows = [job(n) for n in range(20)]
    rows += [job(20, runtime_s=16.0)]
    rows += [job(21, outcome="timeout", runtime_s=15.5)]  # killed above its bound, and given up
    rows += [job(22, outcome="timeout", runtime_s=12.0)]  # killed below it: nothing is known
    rows += [job(23, outcome="timeout", runtime_s=15.5), job(23, runtime_s=14.0)]
    rows += [job(24, outcome="node_failure", runtime_s=99.0)]
    jobs = last_jobs(pd.DataFrame(rows), 100)
    [coverage] = bounds(jobs, 0.01)  # of memory nothing is known
    observed = coverage.observed
    assert (coverage.name, coverage.expected, coverage.drifted) == ("runtime_s", 0.95, False)
    assert (observed.value, observed.subjects) == (21 / 23, 23)
    assert (observed.low, observed.high) == pytest.approx((0.7196, 0.9893), abs=1e-3)
    [median] = medians(jobs, 0.01)
    assert not median.drifted
    assert median.observed.subjects == 22


def test_one_job_of_a_subject_counts() -> None:
    rows = [job(n) | {"subject": "same"} for n in range(8)] + [job(9)]
    rows += [job(8, runtime_s=20.0) | {"subject": "same"}]  # the newest of its subject
    [coverage] = bounds(last_jobs(pd.DataFrame(rows), 100), 0.01)
    assert (coverage.observed.value, coverage.observed.subjects) == (0.5, 2)


def test_a_median_that_is_off_is_told_from_noise() -> None:
    rng = np.random.default_rng(0)
    noisy = [job(n, runtime_s=10 * float(np.exp(rng.normal(0, 0.2)))) for n in range(40)]
    slower = [job(n, runtime_s=20 * float(np.exp(rng.normal(0, 0.2)))) for n in range(40)]
    for rows, is_off in ((noisy, False), (slower, True)):
        [median] = medians(last_jobs(pd.DataFrame(rows), 40), 0.01)
        assert median.drifted == is_off


def test_a_small_sample_without_a_shift_is_not_called_shifted() -> None:
    rng = np.random.default_rng(1)
    flagged = 0
    for _ in range(20):
        training = pd.DataFrame(rng.normal(size=(100, 5)), columns=list("abcde"))
        same = pd.DataFrame(rng.normal(size=(20, 5)), columns=list("abcde"))
        flagged += any(shift.drifted for shift in feature_shifts(training, same, 0.05))
    assert flagged <= 5  # of 20 at 5 %: more have a probability of 0.03 %
    moved = same.assign(c=same["c"] + 2, kind="new")
    shifts = feature_shifts(training.assign(kind="old"), moved, 0.05)
    assert {shift.name for shift in shifts if shift.drifted} == {"c", "kind"}


def test_jobs_are_counted_by_month_and_target() -> None:
    rows = [job_row(n, f"2026-01-{n + 1:02}T00:00:00+00:00", 14.0) for n in range(20)]
    rows += [job_row(n, f"2026-02-{n + 1:02}T00:00:00+00:00", 10.0 + n) for n in range(10)]
    months = monthly_coverage(frame_of(rows), None)
    counted = [
        *months[["month", "target", "below", "subjects"]].itertuples(index=False, name=None)
    ]
    # The second month's jobs of tasks 0 to 9 replace the first's, as those of a second attempt.
    assert counted == [
        ("2026-01", "peak_rss_bytes", 10, 10), ("2026-01", "runtime_s", 10, 10),
        ("2026-02", "peak_rss_bytes", 10, 10), ("2026-02", "runtime_s", 6, 10),
    ]  # fmt: skip
    february = months.iloc[3]
    assert (february["basis"], february["stated"]) == ("submission", 0.95)
    assert [*february[["low", "high"]]] == pytest.approx([0.2624, 0.8784], abs=1e-4)


def test_a_subject_of_an_evaluation_counts_if_all_its_runs_were_below() -> None:
    rows = [measured_row(n, cpus, 10.0) for n in range(30) for cpus in (1, 2)]
    runs = frame_of(rows)
    upper = np.where((runs["subject"] == "007") & (runs["cpus"] == 1), 9.0, 11.0)
    evaluated = pd.DataFrame(
        {
            "cell_key": runs["cell_key"], "app": "segment", "subject": runs["subject"],
            "runtime_s_actual": 10.0, "runtime_s_upper": upper, "peak_rss_bytes_actual": 1.0,
            "peak_rss_bytes_upper": 2.0, "stated": 0.95,
        }
    )  # fmt: skip
    months = monthly_coverage(runs, evaluated)
    memory, runtime = months.itertuples()
    assert (memory.below, memory.subjects) == (30, 30)
    assert (runtime.below, runtime.subjects, runtime.basis) == (29, 30, "evaluation")
    assert runtime.runs == 60
    assert runtime.month == "2026-01"
