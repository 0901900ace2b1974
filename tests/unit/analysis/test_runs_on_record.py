"""Runs on record, in real folders of every kind, and their outlines."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from recorded_jobs import job_row, measured_row
from synthetic_runs import cell, write_run
from voxcast.analysis.runs_on_record import run_outlines, runs_on_record
from voxcast.records import Configuration
from voxcast.runs.series import RUNS
from voxcast.runs.store import collect
from voxcast.runs.table import frame_of

GPU = Configuration("gpu", 1, 1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One batch of two cells, and runs of two devices, of which one is in the batch too."""
    cpu, gpu = tmp_path / "runs" / "cpu", tmp_path / "runs" / "gpu"
    for repeat in range(2):
        write_run(cpu, cell(repeat))
    collect(cpu, tmp_path / "history" / "one")
    write_run(cpu, cell(2))
    write_run(gpu, cell(0, configuration=GPU))
    shutil.rmtree(cpu / cell(0).key)
    return tmp_path


def test_every_type_of_folder_is_read_and_a_key_counts_once(project: Path) -> None:
    counts = {
        "history/one": 2, "history": 2, "runs/cpu": 2, "runs/gpu": 1, "runs": 3,
    }  # fmt: skip
    for name, count in counts.items():
        runs, phases = runs_on_record([project / name])
        assert len(runs) == count, name
        assert runs["cell_key"].is_unique
        assert set(phases["cell_key"]) == set(runs["cell_key"])
        assert set(phases["phase"]) == {"n4"}
    runs, phases = runs_on_record([project / "history", project / "runs"])
    assert len(runs) == len(phases) == 4
    assert runs["started_at"].is_monotonic_increasing
    assert runs["peak_rss_bytes"].iloc[0] == 2**53 + 1


def test_imported_runs_are_excluded(project: Path) -> None:
    part = next((project / "history" / "one").glob(f"*/{RUNS}"))
    frame = pd.read_parquet(part)
    frame.loc[0, "source"] = "sacct"
    frame.to_parquet(part, index=False)
    runs, phases = runs_on_record([project / "history"])
    assert len(runs) == len(phases) == 1


def test_a_broken_table_is_named_and_the_others_are_used(project: Path, caplog) -> None:
    part = next((project / "history" / "one").glob(f"*/{RUNS}"))
    collect(project / "runs" / "cpu", project / "history" / "two")
    part.write_bytes(b"not a table")
    runs, _ = runs_on_record([project / "history"])
    assert set(runs["cell_key"]) == {cell(1).key, cell(2).key}
    assert f"{part}: a part that cannot be read" in caplog.text


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
