"""Drift of jobs: counts with known answers, and the rate of false alarms."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from voxcast.analysis.job_drift import coverage_of, feature_shifts, last_jobs, medians_of


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
    coverage = coverage_of(jobs, "runtime_s")
    assert coverage is not None
    assert (coverage.below, coverage.subjects, coverage.stated) == (21, 23, 0.95)
    assert coverage.interval == pytest.approx((0.7196, 0.9893), abs=1e-3)
    assert coverage_of(jobs, "peak_rss_bytes") is None
    median = medians_of(jobs, "runtime_s", 0.01)
    assert median is not None
    assert not median.drifted
    assert median.jobs == 22


def test_one_job_of_a_subject_counts() -> None:
    rows = [job(n) | {"subject": "same"} for n in range(9)] + [job(9, runtime_s=20.0)]
    coverage = coverage_of(last_jobs(pd.DataFrame(rows), 100), "runtime_s")
    assert coverage is not None
    assert (coverage.below, coverage.subjects) == (1, 2)


def test_a_median_that_is_off_is_told_from_noise() -> None:
    rng = np.random.default_rng(0)
    noisy = [job(n, runtime_s=10 * float(np.exp(rng.normal(0, 0.2)))) for n in range(40)]
    slower = [job(n, runtime_s=20 * float(np.exp(rng.normal(0, 0.2)))) for n in range(40)]
    for rows, is_off in ((noisy, False), (slower, True)):
        median = medians_of(last_jobs(pd.DataFrame(rows), 40), "runtime_s", 0.01)
        assert median is not None
        assert median.drifted == is_off


def test_a_small_sample_without_a_shift_is_not_called_shifted() -> None:
    rng = np.random.default_rng(1)
    flagged = 0
    for _ in range(20):
        training = pd.DataFrame(rng.normal(size=(100, 5)), columns=list("abcde"))
        same = pd.DataFrame(rng.normal(size=(20, 5)), columns=list("abcde"))
        flagged += any(shift.shifted for shift in feature_shifts(training, same, 0.05))
    assert flagged <= 5  # of 20 at 5 %: more have a probability of 0.03 %
    moved = same.assign(c=same["c"] + 2, kind="new")
    shifts = feature_shifts(training.assign(kind="old"), moved, 0.05)
    assert {shift.name for shift in shifts if shift.shifted} == {"c", "kind"}
