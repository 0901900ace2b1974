"""A bend is told from chance, by column and by group."""

import numpy as np
import pytest

from voxcast.models.trend import shares_past_bends


def shares(knot: float, noise: float, seed: int, size_of_group: int = 1) -> dict[str, float]:
    """Return the shares of a trend of power 1 that ends at a knot, over distances up to 1.4."""
    rng = np.random.default_rng(seed)
    distances = rng.uniform(0, 1.4, 60)
    groups = [f"g{n // size_of_group}" for n in range(60)]
    missed = np.minimum(distances, knot) + rng.normal(0, noise, 60)
    by_column = [{"size": distance} for distance in distances.tolist()]
    return shares_past_bends(missed, by_column, by_column, groups)


def test_a_trend_without_a_bend_is_kept_and_one_that_ends_is_not() -> None:
    assert sum(bool(shares(2.0, 0.05, seed)) for seed in range(100)) <= 5
    assert sum(bool(shares(2.0, 0.5, seed)) for seed in range(100)) <= 10
    assert sum(shares(1.1, 0.05, seed) == {"size": 0.0} for seed in range(20)) >= 18


def test_few_groups_past_a_knot_tell_nothing() -> None:
    assert shares(0.7, 0.05, 0, size_of_group=20) == {}


def test_the_column_that_bends_is_told_from_the_other() -> None:
    rng = np.random.default_rng(0)
    distances = rng.uniform(0.1, 1.4, (120, 2))
    missed = np.minimum(distances[:, 0], 0.9) + distances[:, 1] + rng.normal(0, 0.05, 120)
    rows = [{"size": a, "count": b} for a, b in distances.tolist()]
    assert shares_past_bends(missed, rows, rows, [str(n) for n in range(120)]) == {
        "size": pytest.approx(0.0, abs=0.3)
    }


def test_rows_that_are_too_few_have_no_bend() -> None:
    rows = [{"size": 0.5}, {"size": 0.7}]
    assert shares_past_bends(np.array([0.0, 0.1]), rows, rows, ["a", "b"]) == {}
