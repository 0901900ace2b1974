"""Ways of asking, replayed: hand-made cases, and who must not beat whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.per_image import requests_per_image
from voxcast.allocation.requests.programme import (
    equal_probability,
    equal_time,
    without_checkpoints,
)
from voxcast.allocation.requests.replay import (
    PlannedRequests,
    account,
    planned_requests,
    population_requests,
    replay,
)
from voxcast.allocation.site import Waiting
from voxcast.errors import ConfigError, TableError
from voxcast.laws.predicted import PredictedLaw

ROWS = np.array([[10.0, 20.0], [30.0, np.nan]])


def test_a_killed_attempt_is_billed_and_queued_again() -> None:
    outcome = replay(
        PlannedRequests(ROWS), [15.0, 100.0], CostModel(2.0, 1.0, 5.0), Waiting(0.5, 10.0)
    )
    assert outcome.attempts.tolist() == [2, 3]
    # 10 and 20 asked, 10 and 15 used; 30, 60 and 120 asked, 30, 60 and 100 used.
    assert outcome.cost.tolist() == [2 * 30 + 25 + 10, 2 * 210 + 190 + 15]
    assert outcome.busy_s.tolist() == [25, 190]
    assert outcome.turnaround_s.tolist() == [25 + 15 + 20, 190 + 105 + 30]
    assert outcome.omniscient.tolist() == [3 * 15 + 5, 3 * 100 + 5]
    with pytest.raises(ConfigError, match="above 0"):
        replay(PlannedRequests(np.array([[0.0]])), [1.0], CostModel())


def test_summaries_add_up_and_intervals_are_over_subjects() -> None:
    runtime = np.array([15.0, 100.0])
    outcome = replay(PlannedRequests(ROWS), runtime, CostModel())
    summary = account(outcome, runtime, [1, 2], 4e9, 1e9, ["a", "b"])
    assert summary.failures == 3
    assert summary.short_of_memory == 0
    tight = account(outcome, runtime, 1, [4e9, 0.5e9], 1e9, ["a", "b"])
    assert tight.short_of_memory == 1
    assert tight.waste_gb_h == pytest.approx((4 * 25 - 15) / 3600)
    assert summary.waste_core_h == pytest.approx((10 + 2 * 90) / 3600)
    assert summary.waste_gb_h == pytest.approx((4 * 25 - 15 + 4 * 190 - 100) / 3600)
    low, high = summary.normalised_cost_interval
    assert (low, high) == pytest.approx((30 / 15, 210 / 100))
    one_subject = account(outcome, runtime, 1, 4e9, 1e9, ["a", "a"])
    assert one_subject.normalised_cost_interval == pytest.approx((240 / 115, 240 / 115))


@given(
    st.lists(st.floats(1, 1e4), min_size=1, max_size=20),
    st.lists(st.floats(0.5, 50), min_size=1, max_size=4),
    st.floats(0, 3), st.floats(0, 100),
)  # fmt: skip
def test_no_strategy_beats_the_clairvoyant(runtime, steps, beta, gamma) -> None:
    requests = np.tile(np.cumsum(steps), (len(runtime), 1))
    cost = CostModel(1.0, beta, gamma)
    outcome = replay(PlannedRequests(requests), runtime, cost)
    clairvoyant = replay(PlannedRequests(np.array(runtime)[:, None]), runtime, cost)
    assert (outcome.cost >= outcome.omniscient * (1 - 1e-12)).all()
    assert clairvoyant.cost == pytest.approx(outcome.omniscient)
    assert (clairvoyant.attempts == 1).all()


@pytest.mark.parametrize("cost", [CostModel(), CostModel(0.95, 1.0, 150.0)])
def test_replayed_costs_match_the_costs_implied_by_true_laws(cost: CostModel) -> None:
    rng = np.random.default_rng(0)
    median = np.exp(rng.normal(5, 0.8, 20_000))
    runtime = median * np.exp(rng.normal(0, 0.1, len(median)))
    law = PredictedLaw.of_residuals(rng.normal(0, 0.1, 5000))
    ways = planned_requests(
        runtime[:2000],
        median,
        requests_per_image(law, cost, median).requests,
        runtime,
        cost,
        train_cpus=np.ones(2000),
        cpus=np.ones(len(median)),
        site_default_s=1e4,
    )
    costs = {method: replay(plan, runtime, cost) for method, plan in ways.items()}
    per = {
        method: outcome.cost.sum() / outcome.omniscient.sum() for method, outcome in costs.items()
    }
    implied = requests_per_image(law, cost, median)
    assert per["per_image"] == pytest.approx(
        implied.expected_cost.sum() / costs["clairvoyant"].cost.sum(), rel=0.01
    )
    assert per["clairvoyant"] == pytest.approx(1.0)
    assert 1 < per["per_image"] < per["harp_doubling"]
    assert per["per_image"] - 1 < 0.5 * (per["population"] - 1)
    assert per["population"] < per["site_default"]


def test_the_laboratory_requests_the_mean_of_its_last_five_runs() -> None:
    seen = [500.0, 1, 2, 3, 4, 5]
    ways = planned_requests(
        seen, [3.0], [[3.5]], [7.0], CostModel(), train_cpus=[1] * 6, cpus=[1],
        site_default_s=100.0,
    )  # fmt: skip
    assert ways["laboratory"].requests_s.tolist() == [[3.0]]
    outcome = replay(ways["laboratory"], [7.0], CostModel())
    assert outcome.cost.tolist() == [3 + 4.5 + 6.75 + 10.125]


def test_the_population_is_told_the_cpus() -> None:
    rng = np.random.default_rng(1)
    cpus = rng.choice([1, 4], 4000)
    runtime = 400.0 / cpus * np.exp(rng.normal(0, 0.1, len(cpus)))
    by_cpus = population_requests(runtime[:2000], cpus[:2000], cpus[2000:], CostModel())
    for count in (1, 4):
        of_count = by_cpus.requests_s[cpus[2000:] == count]
        alone = runtime[:2000][cpus[:2000] == count]
        expected = population_requests(alone, np.full(len(alone), count), [count], CostModel())
        finite = of_count[0][np.isfinite(of_count[0])]
        np.testing.assert_array_equal(finite, expected.requests_s[0])
        assert (of_count[:, 0] == of_count[0, 0]).all()
    blind = population_requests(runtime[:2000], np.ones(2000), np.ones(2000), CostModel())
    spent = [replay(plan, runtime[2000:], CostModel()).cost.sum() for plan in (by_cpus, blind)]
    assert spent[0] < 0.9 * spent[1]


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


def test_cpus_with_few_runs_get_the_law_of_all() -> None:
    runtime = np.random.default_rng(1).lognormal(4, 0.3, 200)
    cpus = np.where(np.arange(200) < 195, 1, 2)
    everyone = population_requests(runtime, np.ones(200), [1], CostModel())
    few = population_requests(runtime, cpus, [2, 8], CostModel())
    np.testing.assert_array_equal(few.requests_s, np.tile(everyone.requests_s, (2, 1)))
