"""A history of any kind is read by one module and refused in one text."""

import logging
import shutil
from pathlib import Path

import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.errors import TableError
from voxcast.runs.series import TRACES
from voxcast.runs.store import (
    ACCEPTED,
    RUNS,
    collect,
    load_history,
    load_phases,
    load_traces,
    open_history,
)


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    folder = tmp_path / "history" / "own"
    for repeat in range(2):
        write_run(tmp_path / "runs" / "cpu", cell(repeat), samples=50)
        collect(tmp_path / "runs" / "cpu", folder)
    return folder


def test_a_batch_is_read_as_by_the_stages(batch: Path) -> None:
    history = open_history(batch)
    pd.testing.assert_frame_equal(history.runs, load_history([batch]))
    pd.testing.assert_frame_equal(history.phases, load_phases([batch]))
    pd.testing.assert_frame_equal(history.traces, load_traces([batch]))


def test_measured_runs_are_a_history_with_phases_and_traces(batch: Path, tmp_path: Path) -> None:
    recorded = open_history(batch)
    for folder in (tmp_path / "runs" / "cpu", tmp_path / "runs"):
        history = open_history(folder)
        pd.testing.assert_frame_equal(history.runs, recorded.runs)
        assert history.phases["cell_key"].tolist() == recorded.phases["cell_key"].tolist()
        assert len(history.traces) == len(recorded.traces)


def test_a_damaged_part_is_named_and_the_others_are_used(batch: Path, caplog) -> None:
    first, second = sorted(path for path in batch.glob("*/"))
    content = (first / RUNS).read_bytes()
    (first / RUNS).write_bytes(content[: len(content) // 2])
    (second / TRACES).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        history = open_history(batch)
        assert len(history.runs) == 1
        assert history.traces["cell_key"].nunique() == 1
    assert [str(first / RUNS), str(second / TRACES)] == [
        message.partition(": ")[0] for message in caplog.messages
    ]
    with pytest.raises(TableError, match=f"{first.name}/{RUNS}: a part that cannot be read"):
        load_history([batch])
    (second / RUNS).unlink()
    with pytest.raises(TableError, match="no part that can be read"):
        _ = open_history(batch).runs


def test_other_folders_are_refused_in_one_text(batch: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(next(batch.glob("*/")) / RUNS, tmp_path / "table.parquet")
    for path, problem in (
        (tmp_path / "none", "no such folder"),
        (empty, "is not a history of runs"),
        (tmp_path / "table.parquet", "is not a history of runs"),
    ):
        with pytest.raises(TableError) as error:
            open_history([batch, path])
        assert str(error.value) == f"{path}: {problem}; {ACCEPTED}"
