"""Errors, coverage and intervals by hand."""

import pytest

from voxcast.models.metrics import binomial_interval, scores, under_requests


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


def test_binomial_interval_without_trials_is_the_unit_interval() -> None:
    assert binomial_interval(0, 0) == (0.0, 1.0)
    low, high = binomial_interval(5, 100)
    assert low == pytest.approx(0.0164, abs=1e-3)
    assert high == pytest.approx(0.1128, abs=1e-3)
