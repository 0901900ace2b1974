"""Errors, coverage and intervals by hand; scores of predicted quantiles on laws that are known."""

import numpy as np
import pytest
from scipy import stats

import planted
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.metrics import (
    UPPER_QUANTILES,
    binomial_interval,
    crps,
    distribution_metrics,
    reliability,
    scores,
    under_requests,
)
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import TARGETS

PROBABILITIES = np.arange(1, 100) / 100


def test_scores_by_hand() -> None:
    metrics = scores([10, 10, 10, 10], [8, 10, 12, 15])
    assert metrics["mape"] == pytest.approx(22.5)
    assert metrics["upp"] == 25  # equality counts for neither side
    assert metrics["ov_mape"] == pytest.approx(35)
    assert scores([1, 2], [0.5, 1])["ov_mape"] == 0


def test_under_requests_count_subjects_not_runs() -> None:
    exceeded, n, interval = under_requests([5, 5, 1], [1, 1, 1], ["a", "a", "b"])
    assert (exceeded, n) == (1, 2)
    assert interval == binomial_interval(1, 2)


def test_the_crps_of_a_normal_law_is_that_of_its_closed_form() -> None:
    rng = np.random.default_rng(0)
    actual = rng.normal(size=400)
    quantiles = np.tile(stats.norm.ppf(PROBABILITIES), (400, 1))
    closed = actual * (2 * stats.norm.cdf(actual) - 1) + 2 * stats.norm.pdf(actual)
    expected = (closed - 1 / np.sqrt(np.pi)).mean()  # Gneiting and Raftery 2007, equation 21
    assert crps(actual, quantiles, PROBABILITIES) == pytest.approx(expected, rel=0.02)
    assert crps(actual, 1.5 * quantiles, PROBABILITIES) > expected
    assert crps(actual, 0.5 * quantiles, PROBABILITIES) > expected


def test_reliability_counts_subjects_by_their_worst_and_their_best_run() -> None:
    actual, subjects = [1.0, 5.0, 2.0], ["a", "a", "b"]
    lower, upper = reliability(actual, [[1.5, 3.0]] * 3, [0.2, 0.8], subjects)
    assert (lower.below, upper.below, upper.subjects) == (1, 1, 2)


def test_quantiles_of_a_planted_law_are_reliable_and_scored_as_the_noise_is() -> None:
    noise = 0.1
    runs = planted.table(160, noise=noise)
    is_train = runs["subject"].astype(int) <= 80
    table, unseen = runs[is_train].reset_index(drop=True), runs[~is_train]
    recipe = ("ridge", FAMILIES["ridge"].defaults, "volume")
    model = point_model.fit(table, None, *recipe, 0)
    out_of_fold = Validation(table, None, 4, 0).out_of_fold(*recipe)
    forecaster = Forecaster({"volume": calibrate(model, table, out_of_fold, 1.5)})
    metrics = distribution_metrics(forecaster, unseen, None)
    assert set(metrics) == set(TARGETS)
    for target in ("cpu_s", "peak_rss_bytes"):
        # That of the true normal law is its deviation over the root of pi; bounds are for the
        # worst run of a subject, and so wider.
        assert 0.9 < metrics[target]["crps_log"] / (noise / np.sqrt(np.pi)) < 1.4
        points = metrics[target]["reliability"]
        assert len(points) == 2 * len(UPPER_QUANTILES) + 1
        for point in points:
            p, observed = point["nominal"], point["below"] / point["subjects"]
            # Of two runs of a subject, the worse is above the median more often than not.
            deviation = np.sqrt(p * (1 - p) * (1 / 80 + 1 / 80))  # of calibration and of counting
            assert p == 0.5 or abs(observed - p) < 3 * deviation
