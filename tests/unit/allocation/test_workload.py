"""Workload traces: what the format says, and lines that do not say it."""

from pathlib import Path

import numpy as np
import pytest

from voxcast.allocation import workload
from voxcast.allocation.request_table import read_requests
from voxcast.allocation.workload import read_swf
from voxcast.errors import TableError

SMALL = Path(__file__).parents[2] / "samples" / "workloads" / "small.swf"
GOOD = "1 0 5 10 4 -1 -1 8 60 -1 1 1 1 1 1 1 -1 -1"


def trace(folder: Path, *lines: str) -> Path:
    path = folder / "trace.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_sample_is_read() -> None:
    workload = read_swf(SMALL)
    assert len(workload) == 200
    assert workload.max_processors == 32
    assert workload.bad == ()
    assert [r.reason for r in workload.skipped] == ["a job that never ran"]
    assert (np.diff(workload.submit_s) >= 0).all()
    assert (workload.runtime_s <= workload.requested_s).all()
    assert np.isnan(workload.waited_s).all()


def test_fields_are_in_their_places(tmp_path: Path) -> None:
    workload = read_swf(
        trace(tmp_path, "; comment", "", GOOD, " 2 3 -1 0 4 -1 -1 -1 60" + 9 * " 1")
    )
    assert workload.numbers.tolist() == [1, 2]
    assert workload.submit_s.tolist() == [0, 3]
    assert workload.runtime_s.tolist() == [10, 0]  # less than half a second
    assert workload.requested_s.tolist() == [60, 60]
    assert workload.processors.tolist() == [8, 4]  # asked for, else allocated
    assert workload.waited_s[0] == 5
    assert np.isnan(workload.waited_s[1])
    assert workload.max_processors is None


def test_jobs_are_sorted_by_submission(tmp_path: Path) -> None:
    workload = read_swf(trace(tmp_path, GOOD.replace("1 0", "7 90", 1), GOOD))
    assert workload.numbers.tolist() == [1, 7]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2 0 5 10 4", "has 5 fields instead of 18"),
        (GOOD.replace("1 0", "2 x", 1), "not a number"),
        (GOOD.replace("1 0", "2 nan", 1), "out of range"),
        (GOOD.replace("1 0", "2 1e300", 1), "out of range"),
        (GOOD.replace("1 0", "2 -4", 1), "submitted before the start of the trace"),
        (GOOD.replace("1 0", "2 0", 1).replace(" 60 ", " -1 "), "has no requested time"),
        (GOOD.replace("1 0", "2 0", 1).replace(" 60 ", " 1e12 "), "more than ten years"),
        (GOOD.replace("1 0", "2 0", 1).replace(" 8 ", " 1.5 "), "not a whole number"),
        (GOOD.replace("1 0", "2.5 0", 1), "not a whole number"),
        (GOOD, "job 1 is listed twice"),
        ("\xff", "18"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(
    tmp_path: Path, line: str, reason: str
) -> None:
    workload = read_swf(trace(tmp_path, "; header", GOOD, line))
    assert len(workload) == 1
    assert [r.line for r in workload.bad] == [3]
    assert reason in workload.bad[0].reason


def test_a_trace_without_a_usable_job_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TableError, match="no valid job; line 1: has 3 fields"):
        read_swf(trace(tmp_path, "1 2 3"))
    with pytest.raises(TableError, match="empty"):
        read_swf(trace(tmp_path, ""))
    with pytest.raises(TableError, match="cannot be read"):
        read_swf(tmp_path / "gone.swf")
    monkeypatch.setattr(workload, "MAX_JOBS", 1)
    with pytest.raises(TableError, match="more than 1 jobs"):
        read_swf(trace(tmp_path, GOOD, GOOD.replace("1 0", "2 0", 1)))


def test_requests_are_read_and_invalid_ones_reported(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("job,requested_s,why\n1,60,\n3,90.5,x\n")
    assert read_requests(path).times_s == {1: (60.0,), 3: (90.5,)}
    for text, message in (
        ("job,walltime\n1,2\n", "columns job and requested_s"),
        ("job,requested_s\n1,60\n2,-1\n", "line 3: requested_s is -1"),
        ("job,requested_s\n1,nan\n", "line 2: requested_s is nan"),
        ("job,requested_s\nx,60\n", "line 2"),
        ("job,requested_s\n1\n", "line 2"),
    ):
        path.write_text(text)
        with pytest.raises(TableError, match=message):
            read_requests(path)
    with pytest.raises(TableError, match="cannot be read"):
        read_requests(tmp_path / "gone.csv")
