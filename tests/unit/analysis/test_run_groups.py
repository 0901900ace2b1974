"""The noise floor from repeats, and the variation of wall time: the runs that count, the laws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from synthetic_campaign import MACHINE, Campaign
from voxcast.analysis.run_groups import repeat_noise, wall_times
from voxcast.report.inputs import ReportInputs
from voxcast.report.tables import variations

Build = Callable[..., Path]


def completed(build: Build, **options: object) -> pd.DataFrame:
    return ReportInputs.read(build(**options)).completed


def test_noise_is_the_scatter_of_repeats(build: Build) -> None:
    runs = completed(build, subjects=40, repeated=40, noise=0.05)
    pooled = repeat_noise(runs)[0]
    wall = pooled.cv["runtime_s"]
    assert 3.5 < wall.value < 6.5
    assert wall.low < wall.value < wall.high
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


def campaign(values: np.ndarray, repeats: int = 1) -> Campaign:
    synthetic = Campaign()
    for n, value in enumerate(values):
        for repeat in range(repeats):
            synthetic.run(
                "app", value, value, {}, repeat=repeat, volume_id=f"v{n}", subject=f"{n}"
            )
    return synthetic


def test_a_planted_law_is_recovered_and_repeats_count_once() -> None:
    values = np.random.default_rng(2).lognormal(3.0, 0.5, 100)
    [group] = wall_times(campaign(values, repeats=3).tables()[0])
    assert group.varied.n == 100
    assert group.unit == "volume"
    assert group.varied.tied[0] == "lognormal"
    assert group.bootstrap_p is not None
    assert group.bootstrap_p > 0.05
    assert group.varied.mean == pytest.approx(values.mean(), rel=0.01)
    assert group.noise is not None
    assert 0.7 < group.noise.value < 1.3  # planted at 1 %, where the spread is 50 %


def test_anchors_and_disturbed_runs_are_no_values() -> None:
    synthetic = campaign(np.full(6, 10.0) + np.arange(6))
    synthetic.run("app", 90, 90, {}, repeat=1001, volume_id="v0", subject="0")
    synthetic.run("app", 90, 90, {}, repeat=1, noisy=True, volume_id="v1", subject="1")
    synthetic.run("app", 11, 11, {}, repeat=101, volume_id="v1", subject="1")
    synthetic.run("app", 90, 90, {}, noisy=True, volume_id="v9", subject="9")  # all there is of it
    [group] = wall_times(synthetic.tables()[0])
    assert group.varied.n == 7
    assert sorted(group.values_s)[-2] < 20
    assert max(group.values_s) > 80


def test_scales_allocations_and_machines_are_separate_and_two_groups_are_two_modes() -> None:
    trained = Campaign()
    trained.training()
    trained.training(points=3, gpu=True)
    groups = wall_times(trained.tables()[0])
    assert [(g.configuration.label, g.scale, g.machine == MACHINE) for g in groups] == [
        ("cpu, 1 CPU", "full_scale", True),
        ("cpu, 1 CPU", "scaled_down", True),
        ("cpu, 4 CPUs", "full_scale", False),
        ("gpu, 4 CPUs", "full_scale", False),
    ]
    assert groups[0].unit == "setting"
    assert groups[0].varied.modality.verdict == "two"
    few = [*variations({"few": groups[2]}).rows[0].values()]
    assert few[6:] == ["too few runs", "", "", "too few runs"]
