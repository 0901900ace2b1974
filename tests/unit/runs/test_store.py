"""Batches of a history: collected once, whole at any kill, and read or refused in one text."""

import logging
import os
import shutil
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from synthetic_runs import cell, write_run
from voxcast.errors import TableError
from voxcast.runs.series import TRACES, load_records, thinned
from voxcast.runs.store import (
    ACCEPTED,
    RUNS,
    collect,
    load_history,
    load_phases,
    load_traces,
    open_history,
    recorded_cell_keys,
    write_recorded,
)
from voxcast.runs.table import DTYPES, METRONOME, PHASE_DTYPES, TRACE_DTYPES


def _names(batch):
    return sorted(path.name for path in batch.iterdir())


def test_each_measured_run_is_collected_once(tmp_path):
    runs, batch = tmp_path / "runs", tmp_path / "history" / "reference"
    for repeat in range(3):
        write_run(runs, cell(repeat), samples=50)
    (first,) = collect(runs, batch, campaign="reference", campaign_sha256="ab")
    assert collect(runs, batch) == []  # nothing twice
    write_run(runs, cell(3), samples=500)
    (second,) = collect(runs, batch)
    assert first.name[10:] == "-00aa11bb-1"
    assert second.name[10:] == "-00aa11bb-2"

    history = load_history([batch])
    pd.testing.assert_frame_equal(history, load_records(runs), check_like=True)
    assert history.dtypes.astype(str).to_dict() == DTYPES
    phases = load_phases([batch])
    assert phases.dtypes.astype(str).to_dict() == PHASE_DTYPES
    assert phases["duration_s"].tolist() == [1.0] * 4
    traces = load_traces([batch])
    assert traces.dtypes.astype(str).to_dict() == TRACE_DTYPES
    assert traces.groupby("cell_key").size().to_dict() == {
        cell(n).key: 50 if n < 3 else 200 for n in range(4)
    }
    assert (traces.groupby("cell_key")["rss_bytes"].max() == 1000).all()

    provenance = yaml.safe_load((batch / "provenance.yaml").read_text())["parts"]
    assert list(provenance) == [first.name, second.name]
    assert provenance[first.name]["runs"] == 3
    assert provenance[first.name]["campaign_sha256"] == "ab"
    assert provenance[first.name]["machine"]["cpu_model"] == "CPU"
    assert "hostname" not in provenance[first.name]["machine"]
    assert provenance[first.name]["versions"] == {"voxcast": "1.2.3"}  # of the run, not of here


def test_a_partial_part_is_ignored_and_lost_provenance_is_restored(tmp_path):
    runs, batch = tmp_path / "runs", tmp_path / "batch"
    write_run(runs, cell(), samples=3)
    (part,) = collect(runs, batch)
    shutil.copytree(part, batch / ".partial-1")
    (batch / ".partial-1" / "phases.parquet").unlink()
    assert len(load_history([batch])) == 1
    before = (batch / "provenance.yaml").read_text()
    (batch / "provenance.yaml").unlink()
    collect(runs, batch)
    assert _names(batch) == [part.name, "provenance.yaml"]
    assert (batch / "provenance.yaml").read_text() == before


def test_a_killed_collection_loses_and_duplicates_no_run(tmp_path):
    runs, batch = tmp_path / "runs", tmp_path / "batch"
    collect(runs, batch)  # imports all it needs before it is forked
    for repeat in range(12):
        write_run(runs, cell(repeat), samples=300)
        driver = os.fork()
        if not driver:
            collect(runs, batch)
            os._exit(0)
        time.sleep(0.004 * repeat)
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        assert recorded_cell_keys(batch) <= {path.name for path in runs.iterdir()}
        if recorded_cell_keys(batch):
            assert load_history([batch])["cell_key"].is_unique
            assert set(load_traces([batch])["cell_key"]) == recorded_cell_keys(batch)
    collect(runs, batch)
    history = pd.concat([pd.read_parquet(p) for p in batch.glob("[!.]*/runs.parquet")])
    assert sorted(history["cell_key"]) == sorted(path.name for path in runs.iterdir())
    assert not list(batch.glob(".*"))


def test_a_part_that_is_older_than_the_metronome_is_read_beside_a_newer_one(tmp_path):
    runs, batch = tmp_path / "runs", tmp_path / "batch"
    write_run(runs, cell(0))
    (older,) = collect(runs, batch)
    table = older / "runs.parquet"
    pd.read_parquet(table).drop(columns=list(METRONOME)).to_parquet(table, index=False)
    content = table.read_bytes()
    write_run(runs, cell(1), metronome_gather_s=0.004, metronome_ticks=7)
    collect(runs, batch)
    for history in (load_history([batch]), open_history(batch).runs):
        assert history.dtypes.astype(str).to_dict() == DTYPES
        history = history.set_index("cell_key")
        assert history.loc[cell(0).key, list(METRONOME)].isna().all()
        assert history.loc[cell(1).key, "metronome_gather_s"] == 0.004
        assert history.loc[cell(1).key, "metronome_ticks"] == 7
        assert pd.isna(history.loc[cell(1).key, "metronome_copy_s"])
    assert table.read_bytes() == content
    pd.read_parquet(table).drop(columns="steal").to_parquet(table, index=False)
    with pytest.raises(TableError, match="lacks the column steal"):
        load_history([batch])


def test_a_batch_without_parts_is_refused(tmp_path):
    with pytest.raises(TableError, match="has no recorded runs"):
        load_history([tmp_path / "none"])
    assert collect(tmp_path / "none", tmp_path / "batch") == []


def test_a_thinned_series_keeps_its_ends_and_peak():
    samples = pd.DataFrame({"t_s": range(1000), "rss_bytes": [5] * 1000})
    samples.loc[[3, 997], "rss_bytes"] = [9, 8]
    thin = thinned(samples, "rss_bytes", 40)
    assert len(thin) == 40
    assert thin["t_s"].is_monotonic_increasing
    assert {0, 3, 997, 999} <= set(thin["t_s"])
    assert thinned(thin, "rss_bytes", 40) is thin
    with pytest.raises(ValueError, match="at least 3"):
        thinned(samples, "rss_bytes", 2)


def test_a_recorded_history_replaces_runs_of_the_device_and_lists_omissions(tmp_path, caplog):
    caplog.set_level("INFO")
    runs, batch, folder = tmp_path / "runs", tmp_path / "batch", tmp_path / "cpu"
    write_run(runs, cell(), samples=9)
    write_run(runs, cell(app="other"))
    write_run(runs, cell(volume_id="gone"))
    write_run(runs, cell(volume_id="", subject=""))
    collect(runs, batch)
    profiles = write_recorded(folder, [batch], "cpu", {"app"}, {"v1"})
    assert sorted(profiles["volume_id"]) == ["", "v1"]
    read = pd.read_parquet(folder / "runs.parquet")
    assert read.attrs["notes"] == [
        "cpu: 1 recorded runs are of applications that are not configured",
        "cpu: 1 recorded runs are of volumes outside this image set",
    ]
    assert all(note in caplog.text for note in read.attrs["notes"][:1])
    assert set(pd.read_parquet(folder / "phases.parquet")["cell_key"]) == set(read["cell_key"])
    assert set(pd.read_parquet(folder / "traces.parquet")["cell_key"]) == {cell().key}
    assert len(write_recorded(tmp_path / "gpu", [batch], "gpu", {"app"}, {"v1"})) == 0
    gpu = pd.read_parquet(tmp_path / "gpu" / "runs.parquet")
    assert gpu.attrs["notes"] == ["gpu: the recorded history has no runs on it"]


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
