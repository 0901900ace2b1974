"""Phases that are read from traces: planted ones, the published SLANT tasks, broken traces."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.phases.segments import (
    LoggedRun,
    Segmenter,
    Trace,
    change_points,
    readable_trace,
    segmented_runs,
    time_right,
)
from voxcast.runs.table import DTYPES, PHASE_DTYPES, TRACE_DTYPES, frame_of

ARTIFACT = os.environ.get("VOXCAST_SLANT_ARTIFACT")
PHASES = ("read", "filter", "solve", "write")
GB = 1e9


def planted(
    random: np.random.Generator, step_s: float = 1.0, noise: float = 0.02
) -> tuple[Trace, np.ndarray]:
    """Return a trace of four phases: a level, a ramp, a saw-tooth of tiles, a level."""
    durations_s = np.array([20, 60, 120, 25]) * random.lognormal(0, 0.3, 4)
    ends_s = np.cumsum(durations_s)
    t_s = np.arange(0, ends_s[-1], step_s)
    starts_s = np.append(0, ends_s[:-1])
    size = random.lognormal(0, 0.4)
    shapes = [
        lambda x: 1 + 0 * x,
        lambda x: 1.5 + 3 * np.minimum(x / 60, 1),
        lambda x: 2 + 8 * ((x % 11) / 11),
        lambda x: 0.8 + 0 * x,
    ]
    busy = [0.3, 1.0, 3.8, 0.6]
    phase = np.searchsorted(ends_s[:-1], t_s, side="right")
    level = np.array([shapes[p](t - starts_s[p]) for p, t in zip(phase, t_s, strict=True)])
    memory = GB * size * level * random.lognormal(0, noise, len(t_s))
    cpu_s = np.cumsum(np.array(busy)[phase] * step_s)
    return Trace(t_s, memory, cpu_s), ends_s[:-1]


def logged(n: int, seed: int, step_s: float = 1.0) -> list[LoggedRun]:
    random = np.random.default_rng(seed)
    runs = [planted(random, step_s) for _ in range(n)]
    return [LoggedRun(*run, subject=f"sub-{k}") for k, run in enumerate(runs)]


def history(runs: list[LoggedRun], n_logged: int):
    """Return the tables of runs of which the first have logged their phases."""
    keys = [f"run{n:03}" for n in range(len(runs))]
    identity = {"app": "planted", "cpus": 4, "volume_id": ""}
    table = frame_of(
        [
            dict.fromkeys(DTYPES) | identity
            | {"cell_key": key, "outcome": "completed", "subject": run.subject,
               "runtime_s": run.trace.t_s[-1], "source": "measured", "labels_json": ""}
            for key, run in zip(keys, runs, strict=True)
        ],
        {name: DTYPES[name] for name in (*identity, "cell_key", "outcome", "subject",
                                         "runtime_s", "source", "labels_json")},
    )  # fmt: skip
    phases, traces = [], []
    for n, (key, run) in enumerate(zip(keys, runs, strict=True)):
        ends_s = [0, *run.boundaries_s, run.trace.t_s[-1]]
        if n < n_logged:
            phases += [
                identity | {"cell_key": key, "phase": name, "start_s": a, "end_s": b,
                            "duration_s": b - a, "cpu_s": None, "peak_rss_bytes": None}
                for name, a, b in zip(PHASES, ends_s[:-1], ends_s[1:], strict=True)
            ]  # fmt: skip
        traces.append(
            pd.DataFrame({"cell_key": key, "t_s": run.trace.t_s,
                          "rss_bytes": run.trace.rss_bytes.astype("int64"),
                          "cpu_s": run.trace.cpu_s})
        )  # fmt: skip
    return table, frame_of(phases, PHASE_DTYPES), pd.concat(traces).astype(TRACE_DTYPES)


@pytest.mark.parametrize("step_s", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("with_cpus", [True, False])
def test_planted_phases_are_read_within_two_samples(step_s: float, with_cpus: bool) -> None:
    teachers, others = logged(12, seed=1), logged(30, seed=2, step_s=step_s)
    segmenter = Segmenter(PHASES, teachers)
    errors, shares = [], []
    for run in others:
        trace = run.trace if with_cpus else Trace(run.trace.t_s, run.trace.rss_bytes, None)
        starts_s, _ = segmenter.boundaries_s(trace)
        errors.append(np.abs(starts_s - run.boundaries_s))
        shares.append(time_right(trace, run.boundaries_s, starts_s))
    assert np.mean(np.array(errors) <= 2 * max(step_s, 1.0)) > 0.9
    assert np.mean(shares) > 0.95


def test_the_stated_accuracy_is_that_on_other_subjects() -> None:
    segmenter = Segmenter(PHASES, logged(20, seed=3))
    shares = [
        time_right(run.trace, run.boundaries_s, segmenter.boundaries_s(run.trace)[0])
        for run in logged(40, seed=4)
    ]
    assert segmenter.share_right == pytest.approx(np.mean(shares), abs=0.03)
    assert Segmenter(PHASES, logged(2, seed=3)).share_right is None


def test_a_history_gets_phases_for_runs_without_and_refuses_what_looks_unlike() -> None:
    runs = logged(30, seed=5)
    random = np.random.default_rng(6)
    t_s = np.arange(0.0, 200.0)
    strange = LoggedRun(Trace(t_s, GB * random.uniform(1, 50, 200), 4 * t_s), runs[0].boundaries_s)
    segmented = segmented_runs(*history([*runs, strange], n_logged=20))
    assert segmented.logged_runs == 20
    assert segmented.left_out["unlike those with logged phases"] >= 1
    read = segmented.phases
    assert "run030" not in set(read["cell_key"])
    assert read["cell_key"].nunique() >= 8
    of_run = read[read["cell_key"] == read["cell_key"].iloc[0]]
    run = runs[int(of_run["cell_key"].iloc[0][3:])]
    assert tuple(of_run["phase"]) == PHASES
    assert of_run["start_s"].iloc[1:].to_numpy() == pytest.approx(run.boundaries_s, abs=3)
    assert of_run["duration_s"].sum() == pytest.approx(np.ptp(run.trace.t_s))
    solve = of_run[of_run["phase"] == "solve"].iloc[0]
    assert solve["peak_rss_bytes"] == pytest.approx(run.trace.rss_bytes.max(), rel=1e-6)
    assert solve["cpu_s"] / solve["duration_s"] == pytest.approx(3.8, rel=0.1)


def test_without_logged_runs_phases_have_numbers_and_the_same_sequence() -> None:
    runs = logged(12, seed=7)
    segmented = segmented_runs(*history(runs, n_logged=0))
    assert segmented.logged_runs == 0
    assert segmented.share_right is None
    sequences = segmented.phases.groupby("cell_key")["phase"].agg(tuple)
    assert len(sequences) == 12
    assert len(set(sequences)) == 1
    names = sequences.iloc[0]
    assert names == tuple(f"phase_{n}" for n in range(1, len(names) + 1))
    starts = segmented.phases.groupby("cell_key")["start_s"].agg(list)
    near = [
        np.abs(np.array(start_s)[:, None] - run.boundaries_s).min(axis=0)
        for start_s, run in zip(starts, runs, strict=True)
    ]
    assert np.mean(np.array(near) <= 5) > 0.75


def test_change_points_of_a_run_alone_follow_the_planted_levels() -> None:
    random = np.random.default_rng(8)
    memory = GB * np.repeat([1.0, 5.0, 2.0], 60) * random.lognormal(0, 0.03, 180)
    t_s = np.arange(180.0)
    for every in (1, 2, 4):
        trace = Trace(t_s[::every], memory[::every])
        assert change_points(trace) == pytest.approx([60, 120], abs=every)


def test_a_constant_trace_has_no_change_points_and_can_be_aligned() -> None:
    t_s = np.arange(50.0)
    constant = Trace(t_s, np.full(50, GB), None)
    assert change_points(constant).size == 0
    starts_s, _ = Segmenter(PHASES, logged(6, seed=9)).boundaries_s(constant)
    assert np.all(np.diff(starts_s) >= 0)
    assert np.all((starts_s >= 0) & (starts_s <= 49))
    twins = [LoggedRun(constant, np.array([10.0, 20.0, 30.0]), f"sub-{n}") for n in range(4)]
    assert np.isfinite(Segmenter(PHASES, twins).boundaries_s(constant)[0]).all()


def test_two_samples_suffice_and_fewer_are_an_error() -> None:
    two = readable_trace([0, 10], [GB, 2 * GB], [0, 10])
    assert two is not None
    starts_s, _ = Segmenter(PHASES, logged(6, seed=10)).boundaries_s(two)
    assert np.all((starts_s >= 0) & (starts_s <= 10))
    assert change_points(two).size == 0
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
    runs, phases, traces = history(logged(2, seed=11), n_logged=2)
    with pytest.raises(TableError, match="no completed run with a trace"):
        segmented_runs(runs, phases, traces[:0])


@pytest.mark.skipif(not ARTIFACT, reason="VOXCAST_SLANT_ARTIFACT is not set")
def test_slant_tasks_are_read_within_a_minute_for_four_fifths_of_other_subjects() -> None:
    from memory_phases import TASKS, crossed, slant_runs

    runs = slant_runs(Path(str(ARTIFACT)))
    assert len(runs) == 88
    errors, shares, _ = crossed(TASKS, runs)
    assert (errors <= 60).all(axis=1).mean() >= 0.8
    assert shares.mean() > 0.95
