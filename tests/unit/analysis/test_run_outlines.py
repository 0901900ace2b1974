"""Outlines of runs: what was requested, used and predicted."""

import pandas as pd
import pytest

from recorded_jobs import job_row, measured_row
from voxcast.analysis.runs_on_record import run_outlines
from voxcast.runs.table import frame_of

EVALUATED = pd.DataFrame(
    {
        "cell_key": ["run-1-1", "another"], "runtime_s_median": [11.0, 1.0],
        "runtime_s_upper": [12.0, 2.0], "peak_rss_bytes_median": [1e8, 1.0],
        "peak_rss_bytes_upper": [2e8, 2.0], "stated": [0.9, 0.9],
    }
)  # fmt: skip


def test_a_job_has_its_request_and_prediction_and_a_measured_run_that_of_its_evaluation() -> None:
    rows = [
        job_row(1, "2026-01-01T00:00:00+00:00", 12.0),
        job_row(2, "2026-01-02T00:00:00+00:00", 13.0, labels_json="not JSON", peak_rss_bytes=None),
        measured_row(1, 1, 10.0),
        measured_row(2, 1, 10.0),
    ]
    job, by_hand, evaluated, measured = run_outlines(frame_of(rows), EVALUATED).to_dict("records")
    assert (job["requested_s"], job["used_s"], job["predicted_upper_s"]) == (20.0, 12.0, 15.0)
    assert (job["requested_bytes"], job["used_bytes"]) == (4e8, 2.5e8)
    assert (job["predicted_by"], job["confidence"]) == ("submission", 0.95)
    assert (by_hand["requested_s"], by_hand["predicted_by"]) == (20.0, "")
    assert pd.isna(by_hand["used_bytes"])
    assert (evaluated["predicted_by"], evaluated["predicted_median_s"]) == ("evaluation", 11.0)
    assert evaluated["confidence"] == 0.9
    assert pd.isna(evaluated["requested_s"])  # the limit of a campaign is no request
    assert measured["predicted_by"] == ""
    assert pd.isna(measured["predicted_median_s"])


@pytest.mark.parametrize("evaluated", [None, EVALUATED])
def test_no_run_has_no_outline(evaluated: pd.DataFrame | None) -> None:
    assert run_outlines(frame_of([]), evaluated).empty
