"""CPU against GPU on planted runs: what was put in is found, and nothing is made up."""

import numpy as np
import pandas as pd
import pytest

from voxcast.allocation.pricing import Prices
from voxcast.history.schema import PHASE_DTYPES, checked_row, frame_of
from voxcast.report.devices import WHOLE, bootstrap_ratio, compare_devices, missing_side

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


def phase(of: dict[str, object], name: str, seconds: float) -> dict[str, object]:
    return {k: of[k] for k in ("cell_key", "app", "volume_id", "cpus")} | {
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
        runs.append(run("whole", n, 0, 0, size + 8.0, "a"))
        phases.append(phase(runs[-1], "network", size))
    return frame_of(runs), frame_of(phases, PHASE_DTYPES)


def test_planted_speedup_is_found_on_the_same_machine(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    found = {(c.app, c.phase): c for c in compare_devices(*history, Prices())}
    assert set(found) == {("network", WHOLE), ("network", "network")}
    whole = found["network", WHOLE]
    assert whole.hosts == ("machine a", "machine a")
    assert whole.speedup.low < SPEEDUP < whole.speedup.high or whole.speedup.value == (
        pytest.approx(SPEEDUP, rel=0.02)
    )
    assert len(whole.pairs) == 12
    assert whole.pairs["speedup"].is_monotonic_increasing
    assert 1 < whole.cv_percent[0] < 4
    assert whole.cv_percent[1] == pytest.approx(0, abs=1e-9)
    assert whole.usd[1] == pytest.approx(whole.usd[0] / SPEEDUP * (0.093 / 0.003), rel=0.05)
    assert found["network", "network"].speedup.value == pytest.approx(10)


def test_a_composition_says_so_and_keeps_the_cpu_phases(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    found = compare_devices(*history, Prices(), compositions={"whole": ("network", "network")})
    (composed,) = [c for c in found if c.composed]
    assert composed.app == "whole"
    assert (composed.pairs["gpu_s"] > 8.0).all()
    assert np.isnan(composed.cv_percent[1])


def test_a_missing_side_is_named(history: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    runs, _ = history
    assert missing_side(runs) is None
    assert "GPU" in str(missing_side(runs[runs["gpus"] == 0]))
    assert "CPU" in str(missing_side(runs[runs["gpus"] > 0]))
    assert compare_devices(runs[runs["gpus"] == 0], history[1], Prices()) == []


def test_a_composition_exchanges_the_phase_at_the_same_number_of_cpus() -> None:
    rows = [run("whole", n, 0, 0, 10.0, "a") for n in range(4)]
    rows += [run("whole", n, 0, 0, 6.0, "a") | {"cpus": 2} for n in range(4)]
    rows += [run("network", n, 1, 0, 1.0, "b") for n in range(4)]
    for number, row in enumerate(rows):
        row["cell_key"] = str(number)
    phases = [phase(r, "network", 1.0 if r["gpus"] else 4.0) for r in rows]
    compositions = {"whole": ("network", "network")}
    tables = frame_of(rows), frame_of(phases, PHASE_DTYPES)
    one, two = compare_devices(*tables, Prices(), compositions=compositions)
    assert (one.cpus, two.cpus) == (1, 2)
    assert one.speedup.value == pytest.approx(10 / 7)
    assert two.speedup.value == pytest.approx(6 / 3)
    assert one.hosts == ("machine a", "machine b")  # not called one machine


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
    found = compare_devices(frame_of(rows), frame_of(phases, PHASE_DTYPES), Prices())
    gains = {(c.scale, c.phase): c.speedup.value for c in found}
    assert gains["full_scale", WHOLE] == pytest.approx(8)
    assert gains["scaled_down", WHOLE] == pytest.approx(2)
    assert gains["full_scale", "epoch"] == pytest.approx(2)
    assert np.isnan(found[1].cv_percent[0])  # epochs are no repeats


def test_what_gains_least_is_called_by_volume_or_by_what_differs(
    history: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    whole = next(c for c in compare_devices(*history, Prices()) if not c.phase)
    first = whole.pairs["volume_id"].iloc[0]
    assert whole.least(1, {first: "head.nii.gz"})[0].startswith("head.nii.gz: ")
    rows = [
        run("train", 0, gpus, 0, 4.0 / (1 + gpus * n), "a")
        | {"cell_key": f"{n}{gpus}", "volume_id": "", "subject": ""}
        | {"parameters_json": f'{{"epochs":3,"width":{n}}}'}
        for n in (2, 1)
        for gpus in (0, 1)
    ]
    [one] = compare_devices(frame_of(rows), frame_of([], PHASE_DTYPES), Prices())
    assert one.least(5) == ["width 1: 2×", "width 2: 3×"]


def test_one_pair_gives_no_interval() -> None:
    assert not bootstrap_ratio(np.array([0.5]), 0).known
