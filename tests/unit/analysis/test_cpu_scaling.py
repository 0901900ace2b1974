"""Comparisons of numbers of CPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from voxcast.analysis.devices import compare_cpus
from voxcast.report.inputs import ReportInputs
from voxcast.report.wording import cpu_verdict

Build = Callable[..., Path]


def completed(build: Build, **options: object) -> pd.DataFrame:
    return ReportInputs.read(build(**options)).completed


@pytest.mark.parametrize(
    ("speed", "noise", "expected"),
    [
        (1.5, 0.01, "2 CPUs against 1: 1.5"),
        (0.6, 0.01, "2 CPUs against 1: 0.6"),
        (1.0, 0.05, "no difference beyond the repeat noise of"),
    ],
)
def test_configurations_are_compared(
    build: Build, speed: float, noise: float, expected: str
) -> None:
    [comparison] = compare_cpus(completed(build, speed=speed, noise=noise))
    assert expected in cpu_verdict(comparison)
    assert comparison.differs == (speed != 1.0)
    assert comparison.cpu_ratio.value == pytest.approx(1, abs=0.05)


def test_a_significant_difference_within_the_noise_is_not_reported(build: Build) -> None:
    runs = completed(build, subjects=40, repeated=40, noise=0.05, speed=1.02)
    [comparison] = compare_cpus(runs)
    assert not comparison.differs
    assert "no difference beyond the repeat noise" in cpu_verdict(comparison)


def test_one_configuration_or_one_subject_gives_no_claim(build: Build) -> None:
    runs = completed(build)
    assert compare_cpus(runs[runs["cpus"] == 1]) == []
    [comparison] = compare_cpus(runs[runs["subject"] == "0001"])
    assert not comparison.differs
    assert "too few for an interval" in cpu_verdict(comparison)
