"""Scores of predicted quantiles, by hand and on laws that are known."""

import numpy as np
import pytest
from scipy import stats

from voxcast.models.distribution_metrics import (
    covered_by_predicted_quarter,
    crps,
    joint_exceedance,
    pinball_losses,
    reliability,
)

PROBABILITIES = np.arange(1, 100) / 100


def test_the_crps_of_a_normal_law_is_that_of_its_closed_form() -> None:
    rng = np.random.default_rng(0)
    actual = rng.normal(size=400)
    quantiles = np.tile(stats.norm.ppf(PROBABILITIES), (400, 1))
    closed = actual * (2 * stats.norm.cdf(actual) - 1) + 2 * stats.norm.pdf(actual)
    expected = (closed - 1 / np.sqrt(np.pi)).mean()  # Gneiting and Raftery 2007, equation 21
    assert crps(actual, quantiles, PROBABILITIES) == pytest.approx(expected, rel=0.02)
    assert crps(actual, 1.5 * quantiles, PROBABILITIES) > expected
    assert crps(actual, 0.5 * quantiles, PROBABILITIES) > expected


def test_of_all_constants_the_quantile_has_the_least_pinball_loss() -> None:
    actual = np.random.default_rng(1).lognormal(size=4001)
    for probability in (0.1, 0.5, 0.95):
        candidates = np.quantile(actual, np.arange(0.01, 1, 0.01))
        losses = [
            pinball_losses(actual, np.full((4001, 1), c), [probability])[0] for c in candidates
        ]
        assert (np.argmin(losses) + 1) / 100 == pytest.approx(probability, abs=0.011)


def test_reliability_counts_subjects_by_their_worst_and_their_best_run() -> None:
    actual, subjects = [1.0, 5.0, 2.0], ["a", "a", "b"]
    lower, upper = reliability(actual, [[1.5, 3.0]] * 3, [0.2, 0.8], subjects)
    assert (lower.below, upper.below, upper.subjects) == (1, 1, 2)


@pytest.mark.parametrize("too_narrow", [1.0, 0.6])
def test_reliable_quantiles_are_within_their_binomial_bands(too_narrow: float) -> None:
    rng = np.random.default_rng(2)
    probabilities = [0.1, 0.25, 0.75, 0.9, 0.95]
    quantiles = np.tile(too_narrow * stats.norm.ppf(probabilities), (600, 1))
    points = reliability(rng.normal(size=600), quantiles, probabilities, np.arange(600))
    within = [point.interval[0] <= point.nominal <= point.interval[1] for point in points]
    assert all(within) == (too_narrow == 1.0)


def test_joint_bounds_hold_together_at_the_quantile_of_bonferroni() -> None:
    rng = np.random.default_rng(3)
    actual, subjects = rng.normal(size=(4000, 3)), np.arange(4000)
    each = np.full((4000, 3), stats.norm.ppf(0.95))
    together = np.full((4000, 3), stats.norm.ppf(1 - 0.05 / 3))
    alone, n, _ = joint_exceedance(actual, each, subjects)
    assert alone / n == pytest.approx(1 - 0.95**3, abs=0.02)
    _, _, (low, high) = joint_exceedance(actual, together, subjects)
    assert low <= 0.05 <= high + 0.01
    assert joint_exceedance([[1, 9], [1, 1]], [[2, 2], [2, 2]], ["a", "a"])[:2] == (1, 1)


def test_quarters_are_of_what_was_predicted() -> None:
    actual = [1, 2, 3, 4, 50, 6, 7, 80]
    assert covered_by_predicted_quarter(actual, [10] * 8, [1, 2, 3, 4, 5, 6, 7, 8]) == [
        (2, 2), (2, 2), (1, 2), (1, 2),
    ]  # fmt: skip
