"""Coverage by month: jobs below their bounds, and unseen subjects of an evaluation."""

import numpy as np
import pandas as pd
import pytest

from recorded_jobs import job_row, measured_row
from voxcast.analysis.job_drift import monthly_coverage
from voxcast.runs.table import frame_of


def test_jobs_are_counted_by_month_and_target() -> None:
    rows = [job_row(n, f"2026-01-{n + 1:02}T00:00:00+00:00", 14.0) for n in range(20)]
    rows += [job_row(n, f"2026-02-{n + 1:02}T00:00:00+00:00", 10.0 + n) for n in range(10)]
    months = monthly_coverage(frame_of(rows), None)
    counted = [(m.month, m.target, m.below, m.subjects) for m in months]
    # The second month's jobs of tasks 0 to 9 replace the first's, as those of a second attempt.
    assert counted == [
        ("2026-01", "peak_rss_bytes", 10, 10), ("2026-01", "runtime_s", 10, 10),
        ("2026-02", "peak_rss_bytes", 10, 10), ("2026-02", "runtime_s", 6, 10),
    ]  # fmt: skip
    february = months[3]
    assert (february.basis, february.stated) == ("submission", 0.95)
    assert february.interval == pytest.approx((0.2624, 0.8784), abs=1e-4)


def test_a_subject_of_an_evaluation_counts_if_all_its_runs_were_below() -> None:
    rows = [measured_row(n, cpus, 10.0) for n in range(30) for cpus in (1, 2)]
    runs = frame_of(rows)
    upper = np.where((runs["subject"] == "007") & (runs["cpus"] == 2), 9.0, 11.0)
    evaluated = pd.DataFrame(
        {
            "cell_key": runs["cell_key"], "app": "segment", "subject": runs["subject"],
            "runtime_s_actual": 10.0, "runtime_s_upper": upper, "peak_rss_bytes_actual": 1.0,
            "peak_rss_bytes_upper": 2.0, "stated": 0.95,
        }
    )  # fmt: skip
    memory, runtime = monthly_coverage(runs, evaluated)
    assert (memory.below, memory.subjects) == (30, 30)
    assert (runtime.below, runtime.subjects, runtime.basis) == (29, 30, "evaluation")
    assert runtime.runs == 60
    assert runtime.month == "2026-01"
