"""Errors, coverage and intervals by hand; scores of predicted quantiles on laws that are known."""

import numpy as np
import pytest

from voxcast.models.metrics import (
    binomial_interval,
    scores,
    under_requests,
)

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
