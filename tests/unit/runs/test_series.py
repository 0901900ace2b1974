"""Folders of runs: records, phases, traces, and what is damaged."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.runs.series import (
    MAX_SAMPLES,
    SAMPLES_FILE,
    load_records,
    phase_peak,
    without_sample,
    write_tables_of,
)
from voxcast.runs.store import collect, open_history
from voxcast.runs.table import DTYPES


def test_records_become_rows_in_the_order_they_were_started(tmp_path):
    runs = [write_run(tmp_path / "runs", cell(repeat)) for repeat in range(3)]
    written = write_tables_of(tmp_path / "runs", tmp_path)
    read = pd.read_parquet(tmp_path / "runs.parquet")
    pd.testing.assert_frame_equal(written, read)
    assert read["cell_key"].tolist() == [run.name for run in reversed(runs)]
    assert read.dtypes.astype(str).to_dict() == DTYPES
    assert read["peak_rss_bytes"].tolist() == [2**53 + 1] * 3  # no float has been in between
    assert read["parameters_json"].tolist() == ['{"a":1.5}'] * 3
    assert read["recipe_json"].tolist() == ['{"seed":1,"spacing_mm":[1.0,1.0,2.0]}'] * 3
    assert read["host_id"].tolist() == ["00aa11bb"] * 3
    assert read["peak_cgroup_bytes"].isna().all()


def test_foreign_and_broken_folders_are_reported_and_skipped(tmp_path, caplog):
    good = write_run(tmp_path, cell())
    write_run(tmp_path, cell(1), name="renamed")
    write_run(tmp_path, cell(2), runtime_s="long")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text('{"cell": {"app"')
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "run.json").write_text("[]")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".partial-x").mkdir()
    (tmp_path / "readme.txt").write_text("mine")
    assert load_records(tmp_path)["cell_key"].tolist() == [good.name]
    warnings = caplog.messages
    assert len(warnings) == 5
    assert any("renamed: has the record of another cell" in line for line in warnings)
    assert any("notes: has no record" in line for line in warnings)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs", cell(), samples=30)


def test_samples_without_a_number_are_left_out_and_said(run: Path, caplog) -> None:
    with np.load(run / SAMPLES_FILE) as arrays:
        samples = {name: arrays[name].astype(float) for name in arrays}
    samples["rss_bytes"][3] = samples["t_s"][4] = np.nan
    np.savez(run / SAMPLES_FILE, **samples)
    assert len(open_history(run.parent).traces) == 28
    warning = f"{run / SAMPLES_FILE}: 2 of 30 samples have no time or memory; left out"
    assert caplog.messages == [warning]
    collect(run.parent, run.parent.parent / "batch")
    assert len(open_history(run.parent.parent / "batch").traces) == 28


def test_a_damaged_trace_is_named_and_the_run_is_kept(run: Path, caplog) -> None:
    (run / SAMPLES_FILE).write_bytes(b"PK")
    collect(run.parent, run.parent.parent / "batch")
    history = open_history(run.parent.parent / "batch")
    assert (len(history.runs), len(history.phases), len(history.traces)) == (1, 1, 0)
    assert f"{run / SAMPLES_FILE}: no trace" in caplog.text


SECONDS, MEMORY = [1.0, 2.0, 3.0], [100, 300, 200]


@pytest.mark.parametrize(
    ("start_s", "end_s", "peak"),
    [
        (1.5, 2.5, 300),  # a sample inside
        (2.2, 2.4, 280),  # between two samples: the higher end
        (2.5, 3.5, 200),  # its own sample, whatever the phase before it held
        (3.2, 3.3, 200),  # after the last sample, within a pause
        (0.5, 0.6, 100),  # before the first
        (4.5, 5.0, None),  # the samples say nothing of it
        (-3.0, -2.0, None),
        (-9.0, 9.0, 300),
    ],
)
def test_a_phase_without_a_sample_has_the_readings_at_its_ends(start_s, end_s, peak) -> None:
    assert phase_peak(SECONDS, MEMORY, start_s, end_s) == peak


def test_a_phase_has_no_sample_where_none_can_have_been_dropped() -> None:
    start_s, end_s = [0.0, 3.2, 3.2], [1.0, 3.8, 6.8]
    assert without_sample([1.0, 2.0, 3.0, 7.0], start_s, end_s).tolist() == [False, True, True]
    thinned = [*range(4), *range(7, MAX_SAMPLES + 3)]
    assert without_sample(thinned, start_s, end_s).tolist() == [False, True, False]
    assert not without_sample([], start_s, end_s).any()
