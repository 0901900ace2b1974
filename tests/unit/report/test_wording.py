"""Sentences, labels and numbers of the report."""

import pandas as pd
import pytest

from voxcast.analysis.devices import DeviceComparison
from voxcast.laws.intervals import Interval
from voxcast.report.results import AppResults
from voxcast.report.sections import _nonbreaking
from voxcast.report.wording import device_label, missing_devices


def test_another_day_is_said_to_be_unknown_or_off_by_so_much() -> None:
    none = pd.DataFrame()
    assert AppResults("segment", {}, none, none, none, none, None).on_new_days()[:9] == "unknown: "
    days = pd.DataFrame({
        "target": ["cpu_s", "cpu_s", "runtime_s"], "local_runs": [0, 2, 0],
        "mape": [13.3, 8.0, 50.0], "low": [10.0, 7.1, 40.0], "high": [17.0, 9.6, 60.0],
        "subjects": [24, 24, 24], "days": [12, 12, 12],
    })  # fmt: skip
    assert AppResults("segment", {}, none, none, none, days, None).on_new_days() == (
        "13 % (10 to 17 %), after 2 runs on that day 8.0 % (7.1 to 9.6 %) in CPU time, as the "
        "speed of a machine differs from day to day; 24 subjects on 12 days, each left out of "
        "the fit but not of the choice of the family"
    )


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "train, 1 CPU: whole run"),
        (
            {"gpu_cpus": 8, "phase": "network", "scale": "scaled_down"},
            "train, scaled down, 1 CPU against 1 GPU with 8 CPUs: phase network",
        ),
    ],
)
def test_a_comparison_of_devices_names_allocations_that_differ(changes: dict, label: str) -> None:
    fields = {
        "app": "train", "phase": "", "scale": "full_scale", "cpus": 1, "gpu_cpus": 1, "gpus": 1,
        "hosts": ("a", "a"), "pairs": pd.DataFrame(), "speedup": Interval(2.0, 1.5, 2.5, 6),
        "cv_percent": (1.0, 1.0), "memory_bytes": (1e9, 2e9), "usd": (0.1, 0.2),
    }  # fmt: skip
    assert device_label(DeviceComparison(**fields | changes)) == label


@pytest.mark.parametrize(
    ("gpus", "outcome", "said"),
    [
        ([0, 1], "completed", "None"),
        ([0, 0], "completed", "no run on a GPU is on record"),
        ([1, 1], "completed", "no run on a CPU is on record"),
        ([0, 1], "failed", "no run on a CPU or a GPU is on record"),
    ],
)
def test_devices_without_runs_are_reported(gpus: list[int], outcome: str, said: str) -> None:
    runs = pd.DataFrame({"gpus": gpus, "outcome": outcome})
    assert str(missing_devices(runs)).startswith(said)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("13 % (10 to 15 %)", ["13 %", "(10 to 15 %)"]),
        ("measured on one machine", ["measured", "on", "one", "machine"]),
        ("2 h 13 min", ["2 h 13 min"]),
        ("4.06 · 5.86 · 13.3 s", ["4.06", "·", "5.86", "·", "13.3 s"]),
    ],
)
def test_values_stay_on_one_line_and_sentences_break(text: str, lines: list[str]) -> None:
    assert [line.replace("\u00a0", " ") for line in _nonbreaking(text).split(" ")] == lines
