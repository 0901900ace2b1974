"""CPU against GPU on synthetic runs with known speed-ups."""

import numpy as np
import pandas as pd
import pytest

from voxcast.allocation.site import Prices
from voxcast.analysis.devices import WHOLE_RUN, compare_devices
from voxcast.laws.intervals import Interval
from voxcast.runs.table import PHASE_DTYPES, checked_row, frame_of

SPEEDUP = 5.0


def run(app: str, n: int, gpus: int, repeat: int, seconds: float, host: str) -> dict[str, object]:
    return checked_row(
        {
            "cell_key": f"{app}-{n}-{gpus}-{repeat}-{host}", "app": app, "app_version": "1",
            "parameters_json": "{}", "volume_id": f"v{n}", "subject": f"{n}", "host_id": host,
            "host_class": f"machine {host}", "device": "gpu" if gpus else "cpu", "cpus": 1,
            "gpus": gpus, "scale": "full_scale", "repeat": repeat, "outcome": "completed",
            "runtime_s": seconds, "cpu_s": seconds, "peak_rss_bytes": 10**9,
            "peak_gpu_bytes": 2 * 10**9 if gpus else None,
        }
    )  # fmt: skip


def phase(row: dict[str, object], name: str, seconds: float) -> dict[str, object]:
    return {k: row[k] for k in ("cell_key", "app", "volume_id", "cpus")} | {
        "phase": name, "start_s": 0.0, "end_s": seconds, "duration_s": seconds, "cpu_s": seconds,
        "peak_rss_bytes": 10**8,
    }  # fmt: skip


@pytest.fixture
def history() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    runs, phases = [], []
    for n in range(12):
        size = rng.uniform(5, 20)
        for repeat in range(2):
            for host, factor in (("a", 1.0), ("b", 3.0)):
                wobble = np.exp(rng.normal(0, 0.02))
                runs.append(run("network", n, 0, repeat, size * wobble * factor, host))
                phases.append(phase(runs[-1], "network", 0.5 * size))
            runs.append(run("network", n, 1, repeat, size / SPEEDUP, "a"))
            phases.append(phase(runs[-1], "network", 0.5 * size / 10))
    return frame_of(runs), frame_of(phases, PHASE_DTYPES)


def test_planted_speedup_is_recovered_on_the_same_machine(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    comparisons = {(c.app, c.phase): c for c in compare_devices(*history, Prices())}
    assert set(comparisons) == {("network", WHOLE_RUN), ("network", "network")}
    whole_run = comparisons["network", WHOLE_RUN]
    assert whole_run.hosts == ("machine a", "machine a")
    assert whole_run.speedup.low < SPEEDUP < whole_run.speedup.high or whole_run.speedup.value == (
        pytest.approx(SPEEDUP, rel=0.02)
    )
    assert len(whole_run.pairs) == 12
    assert whole_run.pairs["speedup"].is_monotonic_increasing
    assert 1 < whole_run.cv_percent[0] < 4
    assert whole_run.cv_percent[1] == pytest.approx(0, abs=1e-9)
    assert whole_run.usd[1] == pytest.approx(
        whole_run.usd[0] / SPEEDUP * (0.093 / 0.003), rel=0.05
    )
    assert comparisons["network", "network"].speedup.value == pytest.approx(10)


def test_one_device_alone_is_not_compared(history: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    runs, phases = history
    assert compare_devices(runs[runs["gpus"] == 0], phases, Prices()) == []


def test_scales_are_apart_recurring_phases_summed_and_containers_of_both_sides_agree() -> None:
    rows, phases = [], []
    for n in range(5):
        for scale, cpu_s in (("full_scale", 8.0), ("scaled_down", 2.0)):
            for gpus in (0, 1):
                row = run("train", n, gpus, 0, 1.0 if gpus else cpu_s, "a") | {"scale": scale}
                row["app_version"] = f"1+image{'ab'[gpus] * 12}"
                row["cell_key"] += scale
                rows.append(row)
                phases += [phase(row, "epoch", 0.1 if gpus else 0.2) for _ in range(1 + n)]
    comparisons = compare_devices(frame_of(rows), frame_of(phases, PHASE_DTYPES), Prices())
    gains = {(c.scale, c.phase): c.speedup.value for c in comparisons}
    assert gains["full_scale", WHOLE_RUN] == pytest.approx(8)
    assert gains["scaled_down", WHOLE_RUN] == pytest.approx(2)
    assert gains["full_scale", "epoch"] == pytest.approx(2)
    assert np.isnan(comparisons[1].cv_percent[0])  # epochs are no repeats


def test_few_subjects_give_a_wide_interval_and_one_subject_none() -> None:
    def speedup(subjects: int) -> Interval:
        rng = np.random.default_rng(1)
        rows = []
        for n, gain in enumerate(np.exp(rng.normal(1.0, 0.3, 8))):
            subject = {"subject": f"{n % subjects}"}
            rows += [run("a", n, 0, 0, 5.0 * gain, "a") | subject]
            rows += [run("a", n, 1, 0, 5.0, "a") | subject]
        tables = frame_of(rows), frame_of([], PHASE_DTYPES)
        [comparison] = compare_devices(*tables, Prices())
        return comparison.speedup

    eight, two = speedup(8), speedup(2)
    assert eight.low < eight.value < eight.high
    assert two.value == pytest.approx(eight.value)
    assert two.low < eight.low < eight.high < two.high
    assert not speedup(1).bounded


def test_allocations_of_a_gpu_and_machines_are_not_pooled() -> None:
    rows = [run("train", n, 0, 0, 12.0, "a") for n in range(6)]
    rows += [run("train", n, 0, 0, 24.0, "c") for n in range(6)]
    for cpus, host, seconds in ((1, "b", 4.0), (8, "b", 3.0), (1, "c", 6.0)):
        for n in range(6):
            row = run("train", n, 1, 0, seconds, host) | {"cpus": cpus}
            rows.append(row | {"cell_key": f"{row['cell_key']}-{cpus}"})
    comparisons = compare_devices(frame_of(rows), frame_of([], PHASE_DTYPES), Prices())
    gains = {(c.hosts, c.gpu_cpus): c.speedup.value for c in comparisons}
    a, b, c = (f"machine {name}" for name in "abc")
    expected = {((a, b), 1): 3, ((a, b), 8): 4, ((c, b), 1): 6, ((c, b), 8): 8, ((c, c), 1): 4}
    assert gains == {key: pytest.approx(value) for key, value in expected.items()}
    assert np.isnan([c.cv_percent for c in comparisons]).all()  # two allocations are no repeats
