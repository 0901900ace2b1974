"""Phases and traces of run folders with damaged files."""

from pathlib import Path

import numpy as np
import pytest

from synthetic_runs import cell, write_run
from voxcast.runs.series import SAMPLES_FILE
from voxcast.runs.store import collect, open_history


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
