"""Intervals of means over subjects."""

import math

import numpy as np
import pytest

from voxcast.laws.intervals import (
    cautious_mean,
    clustered_mean,
    standard_error,
)


def test_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    subjects = [str(n // 3) for n in range(18)]
    hits = 0
    for _ in range(400):
        shared = np.repeat(rng.normal(0, 1, 6), 3)
        hits += clustered_mean(5 + shared + rng.normal(0, 0.3, 18), subjects).covers(5)
    assert 0.9 < hits / 400 < 0.99


def share_above_zero(mean_of: object, samples: np.ndarray) -> float:
    """Return the share of samples, shape (samples, n_subjects), whose interval is above zero."""
    subjects = [str(n) for n in range(samples.shape[1])]
    return float(np.mean([mean_of(sample, subjects).low > 0 for sample in samples]))


@pytest.mark.parametrize("subjects", [4, 6, 9, 15, 30])
def test_skewed_differences_without_a_gain_are_seldom_taken_for_one(subjects: int) -> None:
    rng = np.random.default_rng(subjects)
    sigma = 0.5  # of the logarithm: a skewness of 1.75
    samples = np.exp(sigma**2 / 2) - rng.lognormal(0, sigma, (500, subjects))  # of mean zero
    assert share_above_zero(clustered_mean, samples) > 0.035
    assert share_above_zero(cautious_mean, samples) <= 0.03
    rare = np.where(rng.random((500, subjects)) < 0.2, -4.0, 1.0) + rng.normal(0, 1, samples.shape)
    assert share_above_zero(clustered_mean, rare) > 0.04
    assert share_above_zero(cautious_mean, rare) <= 0.04


def test_a_gain_of_thirty_subjects_is_seen_on_one_side_only() -> None:
    samples = 0.2 + np.random.default_rng(0).normal(0, 0.25, (300, 30))
    assert share_above_zero(cautious_mean, samples) > 0.85
    assert share_above_zero(cautious_mean, -samples) == 0
    up, down = (cautious_mean(s, [*map(str, range(30))]) for s in (samples[0], -samples[0]))
    assert (up.low, up.value, up.high) == pytest.approx((-down.high, -down.value, -down.low))


def test_a_weight_does_not_change_with_its_unit() -> None:
    values, subjects = [1.0, 0.5, -0.2, 0.7], ["a", "a", "b", "c"]
    weights = np.array([0.5, 0.5, 0.25, 1.0])
    for mean_of in (cautious_mean, clustered_mean):
        first, second = (mean_of(values, subjects, w) for w in (weights, 8 * weights))
        assert (first.low, first.high) == pytest.approx((second.low, second.high))
    assert standard_error(values, subjects, weights) == pytest.approx(
        standard_error(values, subjects, 8 * weights)
    )
    assert math.isnan(standard_error([1.0, 2.0], ["a", "a"]))
