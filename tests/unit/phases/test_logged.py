"""Phases of runs: side by side as logged, and read from traces."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.errors import TableError
from voxcast.phases.logged import phase_matrix, phase_summary, phase_table, used_byte_s
from voxcast.phases.segments import Trace, change_points, readable_trace, segmented_runs
from voxcast.records import MEASURED, Phase
from voxcast.runs.slant import KB, PHASES, TRACES
from voxcast.runs.table import DTYPES, PHASE_DTYPES, TRACE_DTYPES, frame_of


def _record(folder, repeat, n4_s=3.0, atropos_s=1.0):
    n4, atropos = Phase("n4", 1.0, 1.0 + n4_s, 0.5), Phase("atropos", 4.0, 4.0 + atropos_s, 0.5)
    return write_run(folder, cell(repeat), phases=(n4, atropos)).name


def test_phases_of_all_folders_in_one_table(tmp_path, caplog):
    keys = [_record(tmp_path / "cpu", 0), _record(tmp_path / "gpu", 1)]
    write_run(tmp_path / "cpu", cell(2), name=".partial-cc")
    (tmp_path / "cpu" / "dd").mkdir()
    (tmp_path / "cpu" / "dd" / "run.json").write_text("[1]")
    table = phase_table([tmp_path / "cpu", tmp_path / "gpu", tmp_path / "missing"])
    assert table["cell_key"].tolist() == sorted(keys * 2)
    assert table["phase"].tolist() == ["n4", "atropos"] * 2
    assert table["duration_s"].tolist() == [3.0, 1.0] * 2
    assert table["peak_rss_bytes"].isna().all()
    assert "dd" in caplog.text


def test_summary_gives_each_phase_its_share(tmp_path):
    _record(tmp_path, 0)
    _record(tmp_path, 1, n4_s=1.0, atropos_s=3.0)
    summary = phase_summary(phase_table([tmp_path]))
    assert summary["phase"].tolist() == ["n4", "atropos"]
    assert summary["runs"].tolist() == [2, 2]
    assert summary["share"].tolist() == pytest.approx([0.5, 0.5])
    assert summary["duration_s"].tolist() == [2.0, 2.0]


def test_no_runs_give_empty_tables_with_all_columns(tmp_path):
    table = phase_table([tmp_path])
    assert table.dtypes.astype(str).to_dict() == PHASE_DTYPES
    table.to_parquet(tmp_path / "phases.parquet")
    assert list(pd.read_parquet(tmp_path / "phases.parquet").columns) == list(PHASE_DTYPES)
    assert len(phase_summary(table)) == 0


def phases(key: str, *row: tuple[str, float, float, float | None]) -> pd.DataFrame:
    rows = [
        {"cell_key": key, "phase": name, "start_s": start, "end_s": end,
         "duration_s": end - start, "peak_rss_bytes": peak}
        for name, start, end, peak in row
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"peak_rss_bytes": "Int64"})


USUAL = (("load", 0.0, 1.0, 10.0), ("epoch", 1.0, 3.0, 20.0), ("epoch", 3.0, 6.0, 30.0))


NO_TRACES = pd.DataFrame({"cell_key": [], "t_s": [], "rss_bytes": []})


def runs_of(keys: str, outcomes: dict[str, str] | None = None) -> pd.DataFrame:
    outcome_by_key = dict.fromkeys(keys, "completed") | (outcomes or {})
    return pd.DataFrame(
        {
            "cell_key": list(outcome_by_key),
            "outcome": outcome_by_key.values(),
            "labels_json": "",
            "source": MEASURED,
        }
    )


def test_repeated_phases_are_one_and_other_runs_are_counted_by_cause() -> None:
    unread = (USUAL[0], ("epoch", 1.0, 2.0, None))
    table = pd.concat(
        [phases("a", *USUAL), phases("b", *USUAL), phases("c", USUAL[0]), phases("d", *unread),
         phases("e", *unread), phases("f", *USUAL)]
    )  # fmt: skip
    runs = runs_of("abcdeg", {"f": "timeout"})
    trace = pd.DataFrame({"cell_key": list("aaabbbee"), "t_s": [0, 3, 9, 0, 3, 9, 50, 51],
                          "rss_bytes": [4, 4, 4, 0, 6, 6, 9, 9]})  # fmt: skip
    used = phase_matrix(runs, table, trace)
    assert used.phases == ("load", "epoch")
    assert used.cell_keys == ("a", "b")
    assert used.duration_s.tolist() == [[1, 5], [1, 5]]
    assert used.peak_bytes.tolist() == [[10, 30], [10, 30]]
    assert used.left_out == {
        "of outcome timeout": 1,
        "without phases": 1,
        "without a trace": 1,
        "without a memory reading near a phase": 1,
        "with other phases": 1,
    }
    assert used_byte_s(runs, trace, used) == pytest.approx(np.array([24.0, 30.0]))
    only = trace[trace["cell_key"] == "a"]
    assert used_byte_s(runs, only, used) is None
    means = {"b": '{"mean_rss_bytes": 2}'}
    labelled = runs.assign(labels_json=[means.get(key, "") for key in runs["cell_key"]])
    assert used_byte_s(labelled, only, used) == pytest.approx(np.array([24.0, 12.0]))


def test_a_short_phase_has_the_readings_at_its_ends() -> None:
    table = phases("a", ("load", 0.0, 1.0, 100.0), ("write", 1.4, 1.6, None))
    trace = pd.DataFrame({"cell_key": "a", "t_s": [0.0, 1.0, 2.0], "rss_bytes": [100, 300, 200]})
    matrix = phase_matrix(runs_of("a"), table, trace)
    assert matrix.peak_bytes.tolist() == [[100, 260]]  # what the source states is kept
    assert matrix.read_at_ends == {"write": 1}
    stated = table.assign(peak_rss_bytes=[100, 260])
    assert phase_matrix(runs_of("a"), stated, trace).read_at_ends == {"write": 1}
    of_source = runs_of("a").assign(source="slant")
    assert phase_matrix(of_source, stated, trace).read_at_ends == {}
    assert phase_matrix(of_source, table, trace).read_at_ends == {"write": 1}


def test_phases_without_peaks_are_refused() -> None:
    with pytest.raises(TableError, match="no run with peak memory of all its phases"):
        phase_matrix(runs_of("a"), phases("a", ("load", 0.0, 1.0, None)), NO_TRACES)


ARTIFACT = os.environ.get("VOXCAST_SLANT_ARTIFACT")
GB = 1e9
LEVELS, CPUS = np.array([1.0, 5.0, 2.0]), np.array([0.3, 1.0, 3.8])


def planted(random: np.random.Generator, step_s: float = 1.0) -> tuple[Trace, np.ndarray]:
    """Return a trace of three phases of random length, and the ends of the first two."""
    ends_s = np.cumsum(np.array([20, 60, 120]) * random.lognormal(0, 0.3, 3))
    t_s = np.arange(0, ends_s[-1], step_s)
    phase = np.searchsorted(ends_s[:-1], t_s, side="right")
    memory = GB * LEVELS[phase] * random.lognormal(0, 0.02, len(t_s))
    cpu_s = np.cumsum(CPUS[phase] * step_s * random.lognormal(0, 0.1, len(t_s)))
    return Trace(t_s, memory, cpu_s), ends_s[:-1]


def history(traces: list[Trace]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of runs and traces."""
    rows = [
        dict.fromkeys(DTYPES)
        | {"cell_key": f"run{n}", "app": "planted", "cpus": 4, "volume_id": "",
           "outcome": "completed"}
        for n in range(len(traces))
    ]  # fmt: skip
    names = ("cell_key", "app", "cpus", "volume_id", "outcome")
    samples = [
        pd.DataFrame({"cell_key": f"run{n}", "t_s": trace.t_s,
                      "rss_bytes": trace.rss_bytes.astype("int64"), "cpu_s": trace.cpu_s})
        for n, trace in enumerate(traces)
    ]  # fmt: skip
    table = frame_of(rows, {name: DTYPES[name] for name in names})
    return table, pd.concat(samples).astype(TRACE_DTYPES)


@pytest.mark.parametrize("step_s", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("with_cpus", [True, False])
def test_change_points_follow_the_planted_phases(step_s: float, with_cpus: bool) -> None:
    trace, ends_s = planted(np.random.default_rng(8), step_s)
    seen = trace if with_cpus else Trace(trace.t_s, trace.rss_bytes)
    points_s = change_points(seen)
    nearest_s = np.abs(ends_s[:, None] - points_s).min(axis=1)
    assert (nearest_s <= 2 * max(step_s, 1.0)).all()
    # A step in which a phase ends has the CPUs of both, and may become a segment of its own.
    assert len(points_s) <= 4 if with_cpus else len(points_s) == 2


def test_all_runs_get_as_many_phases_as_the_run_of_usual_length() -> None:
    random = np.random.default_rng(7)
    runs = [planted(random) for _ in range(12)]
    runs = [(Trace(trace.t_s, trace.rss_bytes), ends_s) for trace, ends_s in runs]
    short = Trace(np.arange(4.0), np.full(4, GB))
    segmented = segmented_runs(*history([*(trace for trace, _ in runs), short]))
    assert segmented.left_out == {"too short for 3 phases": 1}
    for n, (trace, ends_s) in enumerate(runs):
        of_run = segmented.phases[segmented.phases["cell_key"] == f"run{n}"]
        assert of_run["phase"].tolist() == ["phase_1", "phase_2", "phase_3"]
        assert of_run["start_s"].iloc[1:].to_numpy() == pytest.approx(ends_s, abs=3)
        assert of_run["duration_s"].sum() == pytest.approx(np.ptp(trace.t_s))
        assert of_run["peak_rss_bytes"].max() == pytest.approx(trace.rss_bytes.max(), rel=1e-6)


def test_a_constant_trace_and_one_of_two_samples_have_no_change_points() -> None:
    assert change_points(Trace(np.arange(50.0), np.full(50, GB))).size == 0
    two = readable_trace([0, 10], [GB, 2 * GB], [0, 10])
    assert two is not None
    assert change_points(two).size == 0
    assert change_points(two, count=4).size == 0
    for t_s in ([], [1.0], [1.0, np.nan]):
        assert readable_trace(t_s, np.ones(len(t_s))) is None


def test_unreadable_samples_and_a_clock_that_is_set_back() -> None:
    trace = readable_trace(
        [0, 1, np.nan, 2, 1.5, 3, 3], [1, 2, 3, np.nan, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]
    )
    assert trace is not None
    assert trace.t_s.tolist() == [0, 1, 1.5, 3]
    assert trace.rss_bytes.tolist() == [1, 2, 4, 6]
    assert trace.cpu_s is not None
    without_cpu = readable_trace([0, 1], [1, 2], [0, np.nan])
    assert without_cpu is not None
    assert without_cpu.cpu_s is None


def test_a_history_without_traces_is_an_error() -> None:
    runs, traces = history([planted(np.random.default_rng(1))[0]])
    with pytest.raises(TableError, match="no completed run with a trace"):
        segmented_runs(runs, traces[:0])


@pytest.mark.skipif(not ARTIFACT, reason="VOXCAST_SLANT_ARTIFACT is not set")
def test_tasks_of_slant_begin_near_a_change_point() -> None:
    folder = Path(str(ARTIFACT))
    samples = dict(iter(pd.read_csv(folder / TRACES).groupby("run")))
    near = []
    for run, tasks in pd.read_csv(folder / PHASES).sort_values(["run", "task"]).groupby("run"):
        seconds, memory = (samples[run][c].to_numpy(float) for c in ("t_s", "node_used_mem_kb"))
        points_s = change_points(Trace(seconds, memory * KB))
        starts_s = tasks["start_s"].to_numpy(float)[1:]
        near += [np.abs(starts_s[:, None] - points_s).min(axis=1) <= 60.0]
    assert len(near) == 88
    assert np.mean(near) > 0.6
