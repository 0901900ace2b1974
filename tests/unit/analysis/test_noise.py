"""The noise floor, from repeats in a synthetic project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from voxcast.analysis.noise import repeat_noise
from voxcast.report.inputs import ReportInputs

Build = Callable[..., Path]


def completed(build: Build, **options: object) -> pd.DataFrame:
    return ReportInputs.read(build(**options)).completed


def test_noise_is_the_scatter_of_repeats(build: Build) -> None:
    runs = completed(build, subjects=40, repeated=40, noise=0.05)
    pooled = repeat_noise(runs)[0]
    wall = pooled.cv["runtime_s"]
    assert 3.5 < wall.value < 6.5
    assert wall.low < wall.value < wall.high
    assert pooled.degrees_of_freedom["runtime_s"] == pooled.runs - pooled.cells
    assert pooled.cv["cpu_s"].value < wall.value
    each = repeat_noise(runs, by=("app", "device", "cpus"))
    assert [(noise.app, noise.cpus) for noise in each] == [("segment", 1), ("segment", 2)]
    assert sum(noise.cells for noise in each) == pooled.cells


def test_anchors_and_disturbed_runs_are_not_plain_repeats(build: Build) -> None:
    runs = completed(build, repeated=3)
    again = runs[runs["repeat"] == 1].index
    for changed in ({"repeat": 101}, {"repeat": 1001}, {"noisy": True}):
        other = runs.copy()
        for name, value in changed.items():
            other.loc[again, name] = value
        assert repeat_noise(other) == []


def test_unknown_memory_is_not_called_constant(build: Build) -> None:
    runs = completed(build)
    [pooled] = repeat_noise(
        runs.assign(peak_rss_bytes=runs["peak_rss_bytes"].mask(runs["cpus"] > 0))
    )
    assert not pooled.cv["peak_rss_bytes"].bounded
    assert pooled.cv["cpu_s"].bounded
