from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from made_up_campaign import Campaign
from voxcast.analysis.noise import compare_cpus, repeat_noise
from voxcast.laws.intervals import clustered_mean
from voxcast.report.inputs import Evidence

Build = Callable[..., Path]


def completed(build: Build, **options: object) -> pd.DataFrame:
    return Evidence.read(build(**options)).completed


def test_noise_is_the_scatter_of_repeats(build: Build) -> None:
    runs = completed(build, subjects=40, repeated=40, noise=0.05)
    pooled = repeat_noise(runs)[0]
    wall = pooled.cv["runtime_s"]
    assert 3.5 < wall.value < 6.5
    assert wall.low < wall.value < wall.high
    assert pooled.cv["cpu_s"].value < wall.value
    each = repeat_noise(runs, by=("app", "device", "cpus"))
    assert [(one.app, one.cpus) for one in each] == [("segment", 1), ("segment", 2)]
    assert sum(one.cells for one in each) == pooled.cells


def test_runs_of_other_parameters_are_no_repeats(build: Build) -> None:
    runs = completed(build, repeated=3)
    other = runs.assign(parameters_json=runs["repeat"].astype(str))
    assert repeat_noise(other) == []


def test_anchors_disturbed_runs_and_their_repetition_are_no_plain_repeats(build: Build) -> None:
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


def test_runs_without_an_image_are_compared_by_their_settings() -> None:
    made = Campaign()
    for n in range(8):
        parameters = f'{{"epochs":{n}}}'
        for cpus in (1, 2):
            made.run("train", 5.0 + n, (5.0 + n) / cpus, {}, cpus=cpus, parameters_json=parameters)
    [one] = compare_cpus(made.tables()[0])
    assert one.differs
    assert "2 CPUs are 2.0" in one.verdict
    assert "8 settings" in one.verdict


@pytest.mark.parametrize(
    ("speed", "noise", "said"),
    [
        (1.5, 0.01, "2 CPUs are 1.5"),
        (0.6, 0.01, "× slower than 1"),
        (1.0, 0.05, "no difference beyond the repeat noise of"),
    ],
)
def test_configurations_are_compared(build: Build, speed: float, noise: float, said: str) -> None:
    [one] = compare_cpus(completed(build, speed=speed, noise=noise))
    assert said in one.verdict
    assert one.differs == (speed != 1.0)
    assert one.cpu_ratio.value == pytest.approx(1, abs=0.05)


def test_a_sure_difference_within_the_noise_is_no_difference(build: Build) -> None:
    runs = completed(build, subjects=40, repeated=40, noise=0.05, speed=1.02)
    [one] = compare_cpus(runs)
    assert not one.differs
    assert "no difference beyond the repeat noise" in one.verdict


def test_without_repeats_the_noise_is_unknown(build: Build) -> None:
    runs = completed(build, repeated=0)
    assert repeat_noise(runs) == []
    [one] = compare_cpus(runs)
    assert one.noise_percent is None


def test_one_configuration_or_one_subject_gives_no_claim(build: Build) -> None:
    runs = completed(build)
    assert compare_cpus(runs[runs["cpus"] == 1]) == []
    [one] = compare_cpus(runs[runs["subject"] == "0001"])
    assert not one.differs
    assert "too few to say more" in one.verdict


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    subjects = [str(n // 3) for n in range(18)]
    hits = 0
    for _ in range(400):
        shared = np.repeat(rng.normal(0, 1, 6), 3)
        hits += clustered_mean(5 + shared + rng.normal(0, 0.3, 18), subjects).covers(5)
    assert 0.9 < hits / 400 < 0.99
