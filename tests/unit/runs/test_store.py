"""The history: folders of runs, batches that are whole at any kill, groups of its table."""

import logging
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from synthetic_runs import cell, write_run
from voxcast.errors import ConfigError, TableError
from voxcast.runs.series import (
    MAX_SAMPLES,
    SAMPLES_FILE,
    TRACES,
    load_records,
    phase_peak,
    thinned,
    without_sample,
    write_tables_of,
)
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
from voxcast.runs.table import (
    DTYPES,
    METRONOME,
    PHASE_DTYPES,
    TRACE_DTYPES,
    checked_row,
    frame_of,
    group_column,
    groups,
    only_app,
    runs_of_apps,
    runs_where,
)


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


ROWS = [
    {"app": "a", "cpus": 1, "labels_json": '{"site":"x"}', "parameters_json": '{"epochs":3}'},
    {"app": "a", "cpus": 2, "labels_json": "{}", "parameters_json": ""},
    {"app": "b", "cpus": 2, "labels_json": "", "parameters_json": '{"epochs":3}'},
]
FRAME = frame_of(checked_row(row) for row in ROWS)


def test_groups_are_in_order_and_complete() -> None:
    split = groups(FRAME, ["app", "label:site"])
    assert [(names, len(group)) for names, group in split] == [
        ({"app": "a", "label:site": ""}, 1),
        ({"app": "a", "label:site": "x"}, 1),
        ({"app": "b", "label:site": ""}, 1),
    ]
    assert group_column(FRAME, "parameter:epochs").tolist() == ["3", "", "3"]
    assert groups(FRAME, [])[0][0] == {}
    assert group_column(FRAME, "peak_rss_bytes").tolist() == ["", "", ""]


@pytest.mark.parametrize("name", ["nothing", "label:nothing", "thing:app"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(TableError, match="no"):
        group_column(FRAME, name)


CONDITIONED = pd.DataFrame(
    {
        "app": ["a", "a", "b"],
        "cpus": [1, 2, 2],
        "labels_json": ['{"dataset": "X"}', '{"dataset": "Y"}', ""],
        "parameters_json": ["{}", "{}", '{"epochs": 3}'],
    }
)


def test_an_application_is_needed_only_if_there_are_several() -> None:
    assert only_app({"a"}, None, "h") == "a"
    assert only_app({"a", "b"}, "b", "h") == "b"
    with pytest.raises(TableError, match="h: has runs of a, b; choose with --app"):
        only_app({"a", "b"}, None, "h")
    with pytest.raises(TableError, match="h: has no runs of c, but of a, b"):
        only_app({"a", "b"}, "c", "h")
    with pytest.raises(TableError, match="has no runs"):
        only_app([], None, "h")


def test_named_applications_are_selected() -> None:
    assert len(runs_of_apps(CONDITIONED, [], "h")) == 3
    assert runs_of_apps(CONDITIONED, ["b"], "h")["app"].tolist() == ["b"]
    with pytest.raises(TableError, match="no runs of c, d, but of a, b"):
        runs_of_apps(CONDITIONED, ["c", "a", "d"], "h")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("cpus", "cpus: is not a condition; write it as NAME=VALUE"),
        ("cpus=8", "no run has cpus '8'; there are '1', '2'"),
        ("speed=1", "no such column"),
        ("label:site=1", "no run has this label; there are dataset"),
    ],
)
def test_conditions_that_no_run_can_meet_are_refused(condition: str, message: str) -> None:
    with pytest.raises((ConfigError, TableError)) as error:
        runs_where(CONDITIONED, [condition])
    assert message in str(error.value) or message in error.value.problem + "; " + str(
        error.value.then
    )
