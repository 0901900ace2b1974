"""Sequences of many images at once against the programme of each alone."""

import numpy as np
import pytest

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.requests.programme import (
    equal_probability,
    equal_time,
    without_checkpoints,
)
from voxcast.errors import TableError
from voxcast.laws.predicted import PredictedLaw

RNG = np.random.default_rng(0)
RESIDUALS = PredictedLaw.of_residuals(RNG.standard_t(5, 600))
COSTS = [CostModel(), CostModel(0.95, 1, 400), CostModel(2, 0, 1e-3)]


@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_each_image_costs_as_much_as_its_separate_programme(cost: CostModel) -> None:
    median, up = RNG.lognormal(6, 1, 200), np.exp(RNG.normal(-2, 0.5, 200))
    down = up * np.exp(RNG.normal(0, 0.2, 200))
    sequences = requests_per_image(RESIDUALS, cost, median, down, up)
    for i in range(0, 200, 20):
        law = RESIDUALS.scaled(median[i], down[i], up[i])
        best = min(
            cost.expected(law, without_checkpoints(grid(law, 1000), cost).milestones)
            for grid in (equal_probability, equal_time)
        )
        requests = sequences.requests[i][~np.isnan(sequences.requests[i])]
        assert (np.diff(requests) > 0).all()
        assert cost.expected(law, requests) == pytest.approx(sequences.expected_cost[i], rel=1e-6)
        assert sequences.expected_cost[i] <= best * 1.003
        omniscient = cost.omniscient(law)
        assert sequences.normalised_cost[i] == pytest.approx(
            sequences.expected_cost[i] / omniscient
        )


def test_without_a_price_of_requests_one_programme_is_enough_for_all() -> None:
    median = RNG.lognormal(6, 1, 1000)
    sequences = requests_per_image(RESIDUALS, CostModel(), median, 0.1, 0.1)
    shape = sequences.requests / median[:, None]
    np.testing.assert_allclose(shape, np.broadcast_to(shape[0], shape.shape))
    np.testing.assert_allclose(sequences.normalised_cost, sequences.normalised_cost[0])


@pytest.mark.parametrize(
    ("sigma", "floor"), [(0.02, 1.06), (0.05, 1.13), (0.1, 1.24), (0.2, 1.44)]
)
def test_cost_floor_of_a_perfectly_known_lognormal_law(sigma: float, floor: float) -> None:
    residuals = PredictedLaw.of([0.1, 0.5, 0.9], np.exp(1.2815515655446004 * np.array([-1, 0, 1])))
    sequences = requests_per_image(residuals, CostModel(), 100.0, sigma, sigma)
    assert sequences.normalised_cost[0] == pytest.approx(floor, abs=5e-3)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_an_invalid_median_or_spread_is_refused(wrong: float) -> None:
    for name, values in (
        ("median", (wrong, 1, 1)),
        ("down", (1, wrong, 1)),
        ("up", (1, 1, wrong)),
    ):
        with pytest.raises(TableError, match=name):
            requests_per_image(RESIDUALS, CostModel(), *values)
