"""Intervals of means over subjects."""

import math

import numpy as np

from voxcast.laws.intervals import Interval, clustered_mean, exponential


def test_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    subjects = [str(n // 3) for n in range(18)]
    hits = 0
    for _ in range(400):
        shared = np.repeat(rng.normal(0, 1, 6), 3)
        hits += clustered_mean(5 + shared + rng.normal(0, 0.3, 18), subjects).covers(5)
    assert 0.9 < hits / 400 < 0.99


def test_a_very_wide_interval_of_logarithms_stays_finite() -> None:
    wide = exponential(Interval(0.0, -2000.0, 2000.0, 2))
    assert wide.low == 0
    assert wide.value == 1
    assert math.isfinite(wide.high)
