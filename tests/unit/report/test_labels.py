"""Labels and sentences of comparisons."""

import pandas as pd
import pytest

from voxcast.analysis.devices import DeviceComparison
from voxcast.laws.intervals import Interval
from voxcast.report.sections import _nonbreaking
from voxcast.report.wording import (
    device_label,
    device_machines,
    missing_devices,
    smallest_gains,
)


def comparison(pairs: list[dict[str, object]], **changes: object) -> DeviceComparison:
    fields = {
        "app": "train", "phase": "", "scale": "full_scale", "cpus": 1, "gpu_cpus": 1, "gpus": 1,
        "hosts": ("machine a", "machine a"), "pairs": pd.DataFrame(pairs),
        "speedup": Interval(2.0, 1.5, 2.5, 6), "cv_percent": (1.0, 1.0),
        "memory_bytes": (1e9, 2e9), "usd": (0.1, 0.2),
    } | changes  # fmt: skip
    return DeviceComparison(**fields)


def test_a_comparison_of_devices_names_allocations_that_differ() -> None:
    equal = comparison([])
    assert device_label(equal) == "train, 1 CPU: whole run"
    assert device_machines(equal) == "machine a"
    other = comparison([], gpu_cpus=8, phase="network", hosts=("a", "b"), scale="scaled_down")
    text = "train, scaled down, 1 CPU against 1 GPU with 8 CPUs: phase network"
    assert device_label(other) == text
    assert device_machines(other) == "a against b"


def test_work_is_named_by_volume_or_by_the_parameters_that_differ() -> None:
    volume = {"volume_id": "v1", "parameters_json": "{}", "speedup": 2.0}
    assert smallest_gains(comparison([volume]), 1, {"v1": "head.nii.gz"}) == ["head.nii.gz: 2×"]
    settings = [
        {"volume_id": "", "parameters_json": f'{{"epochs":3,"width":{n}}}', "speedup": 1.0 + n}
        for n in (1, 2)
    ]
    assert smallest_gains(comparison(settings), 5) == ["width 1: 2×", "width 2: 3×"]
    assert smallest_gains(comparison(settings[:1]), 5) == ["default parameters: 2×"]


def test_devices_without_runs_are_reported() -> None:
    assert missing_devices([]) is None
    assert "on a GPU is on record" in str(missing_devices(["gpu"]))
    assert "no completed measured run" in str(missing_devices(["cpu", "gpu"]))


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
