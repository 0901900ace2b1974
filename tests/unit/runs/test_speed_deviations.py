"""The speed of a machine during a run: a planted one comes back, and repeats agree better."""

import numpy as np
import pandas as pd
import pytest

from voxcast.runs.speed import KERNELS, at_usual_speed, kernel_times, speed_deviations
from voxcast.runs.table import BEFORE, DTYPES, PHASE_DTYPES, UNKNOWN, in_schema, plain_repeats

WEIGHTS = {"ants_segment": (0.2, 0.1, 0.5, 0.3), "tile_segment": (0.5, 0.0, 0.4, 0.1)}
NOISE = 0.01
Tables = tuple[pd.DataFrame, pd.DataFrame, "pd.Series[float]"]


def planted_tables(*, ticks: int | None, cells: int = 12, repeats: int = 3) -> Tables:
    """Return runs and phases of a machine that is disturbed, and its log speed in each run.

    Each neighbour stays for twelve runs. It slows the four kernels by different amounts, and a run
    by a weighted sum of them; the start of a run is slowed by their mean.
    """
    rng = np.random.default_rng(5)
    order = iter(rng.permutation(len(WEIGHTS) * cells * repeats).tolist())
    neighbours = np.abs(rng.normal(0.0, 0.2, len(WEIGHTS) * cells * repeats))
    rows, phases, speeds = [], [], {}
    for app, weights in WEIGHTS.items():
        for cell in range(cells):
            work = rng.normal(2.0, 0.6)
            for repeat in range(repeats if cell % 4 else 1):
                key = f"{app}-{cell}-{repeat}"
                minute = next(order)
                slowed = neighbours[minute // 12] + rng.normal(0.0, 0.03, 4)
                speeds[key] = -float(slowed @ weights)
                cpu_s = float(np.exp(work - speeds[key] + rng.normal(0.0, NOISE)))
                start_s = float(np.exp(0.5 + slowed.mean() + rng.normal(0.0, NOISE)))
                kernels = 0.004 * np.exp(slowed) if ticks else [None] * 4
                rows.append(
                    {name: UNKNOWN[dtype] for name, dtype in DTYPES.items()}
                    | {"cell_key": key, "app": app, "volume_id": f"v{cell}", "repeat": repeat}
                    | {"cpus": 1, "device": "cpu", "host_id": "00aa11bb", "scale": "full_scale"}
                    | {"cpu_s": cpu_s, "runtime_s": cpu_s, "metronome_ticks": ticks}
                    | {"started_at": f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"}
                    | dict(zip(KERNELS, kernels, strict=True))
                )
                values = {"cell_key": key, "app": app, "volume_id": f"v{cell}", "cpus": 1}
                phases.append(values | {"phase": "start", "start_s": 0.0, "cpu_s": start_s})
    runs = pd.DataFrame(rows).sample(frac=1.0, random_state=1)  # its index is in no order
    starts = pd.DataFrame(phases, columns=list(PHASE_DTYPES)).astype(PHASE_DTYPES)
    return in_schema(runs), starts, pd.Series(speeds)


def scatter(runs: pd.DataFrame) -> float:
    repeats = plain_repeats(runs)
    logs = np.log(repeats["cpu_s"])
    squares = (logs - logs.groupby([repeats["app"], repeats["volume_id"]]).transform("mean")) ** 2
    return float(np.sqrt(squares.sum() / (len(repeats) - 2 * 12)))


@pytest.mark.parametrize(
    ("ticks", "gauge", "correlation", "left"),
    [(20, "metronome", 0.95, 2.0), (None, "start", 0.85, 5.0)],
)
def test_a_planted_speed_is_recovered(
    ticks: int | None, gauge: str, correlation: float, left: float
) -> None:
    runs, phases, speeds = planted_tables(ticks=ticks)
    deviations = speed_deviations(runs, phases)
    assert list(deviations.index) == list(runs["cell_key"])
    assert set(deviations["gauge"]) == {gauge}
    assert np.corrcoef(deviations["log_speed"], speeds[deviations.index])[0, 1] > correlation
    assert scatter(runs) > 6 * NOISE
    assert scatter(at_usual_speed(runs, deviations)) < left * NOISE


def test_coefficients_of_a_run_do_not_come_from_its_own_cell() -> None:
    runs, phases, _ = planted_tables(ticks=20)
    before = speed_deviations(runs, phases)["log_speed"]
    in_cell = (runs["app"] == "ants_segment") & (runs["volume_id"] == "v1")
    factors = 1.0 + 0.2 * (runs["repeat"] == 1)
    changed = runs.assign(cpu_s=runs["cpu_s"].where(~in_cell, runs["cpu_s"] * factors))
    after = speed_deviations(changed, phases)["log_speed"]
    keys = runs.loc[in_cell, "cell_key"]
    np.testing.assert_allclose(after[keys], before[keys], rtol=1e-12)
    assert not np.allclose(after.drop(keys), before.drop(keys), rtol=1e-6)


def test_nothing_is_concluded_without_repeats_or_gauges() -> None:
    runs, phases, _ = planted_tables(ticks=20)
    single = runs[runs["repeat"] == 0]
    for table, starts in ((single, phases), (runs.iloc[:0], phases), (_blind(runs), phases[:0])):
        deviations = speed_deviations(table, starts)
        assert (deviations["log_speed"] == 0.0).all()
        assert (deviations["gauge"] == "").all()
        assert list(at_usual_speed(table, deviations)["cpu_s"]) == list(table["cpu_s"])


def _blind(runs: pd.DataFrame) -> pd.DataFrame:
    return in_schema(runs.drop(columns=[*KERNELS, "metronome_ticks"]))


def test_kernels_that_were_timed_beside_a_run_alone_are_those_before_it() -> None:
    """What runs of an application slow the kernels by is learned from runs timed in both ways."""
    runs, _, _ = planted_tables(ticks=20)
    beside = np.exp(np.log(runs[KERNELS]).mean(axis=1)).to_numpy()
    slowed = runs["app"].map({"ants_segment": 1.5, "tile_segment": 0.8})
    before = runs[KERNELS].div(slowed, axis=0).set_axis(list(BEFORE), axis=1)
    is_known = runs["repeat"] == 0
    runs = runs.assign(**before.where(is_known))
    runs.index = pd.Index([7] * len(runs))  # as of tables that were put together
    times = kernel_times(runs)
    assert list(times.index) == list(runs["cell_key"])
    np.testing.assert_allclose(times.to_numpy(), beside / slowed.to_numpy(), rtol=1e-12)
    unknown = runs.assign(**dict.fromkeys(BEFORE, np.nan))
    np.testing.assert_allclose(kernel_times(unknown).to_numpy(), beside, rtol=1e-12)
    few = unknown.assign(metronome_ticks=2)  # too short a run to tell anything beside it
    assert kernel_times(few).isna().all()
