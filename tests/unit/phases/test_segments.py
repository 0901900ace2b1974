"""Phases that are read from traces: planted ones, the published SLANT tasks, broken traces."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.phases.segments import Trace, change_points, readable_trace, segmented_runs
from voxcast.runs.slant import KB, PHASES, TRACES
from voxcast.runs.table import DTYPES, TRACE_DTYPES, frame_of

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
