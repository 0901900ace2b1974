"""Strategies against exact values, closed forms, and what the papers printed."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.strategies import (
    MAX_REQUESTS,
    STRATEGIES,
    Settings,
    periodic,
    request_sequence,
)
from voxcast.errors import ConfigError
from voxcast.laws.families import EmpiricalLaw, Law, lognormal, normal, parse_law
from voxcast.quantities import counted

ORACLES = Path(__file__).parent / "oracles"
PLAIN = json.loads((ORACLES / "requests_2019.json").read_text())
CHECKPOINTS = json.loads((ORACLES / "requests_2020.json").read_text())
RESERVED = CostModel()
ROUNDED = 1e-3


def laws() -> st.SearchStrategy[Law]:
    positive = st.floats(0.2, 5)
    return st.one_of(
        st.builds(lambda k, r: parse_law(f"gamma({k},{r})"), positive, positive),
        st.builds(
            lambda m, s: parse_law(f"lognormal({m},{s})"), st.floats(0, 3), st.floats(0.05, 1)
        ),
        st.builds(lambda a, b: parse_law(f"beta({a},{b})"), positive, positive),
        st.builds(lambda low, more: parse_law(f"uniform({low},{low + more})"), positive, positive),
        st.builds(EmpiricalLaw, st.lists(st.floats(0.1, 100), min_size=1, max_size=30)),
    )


def costs() -> st.SearchStrategy[CostModel]:
    price = st.floats(0, 3)
    return st.builds(CostModel, st.floats(0.1, 3), price, price, price, price)


@pytest.mark.parametrize("name", PLAIN["laws"])
def test_without_checkpoints_as_computed_exactly(name: str) -> None:
    published = PLAIN["laws"][name]
    law = parse_law(published["law"])
    assert (law.mean, law.sd) == pytest.approx((published["mean"], published["sd"]))
    assert law.quantile(0.5) == pytest.approx(published["median"])
    for strategy, value in published["normalised"].items():
        sequence = request_sequence(strategy, law, RESERVED)
        if (name, strategy) == ("Weibull", "brute_force"):
            assert sequence.normalised_cost <= value
        else:
            assert sequence.normalised_cost == pytest.approx(value, rel=ROUNDED), strategy
        if strategy == "brute_force" and name != "Weibull":
            assert sequence.milestones[0] == pytest.approx(
                published["first_brute_force"], abs=1e-3
            )
        if strategy == "equal_time":
            assert sequence.milestones == pytest.approx(published["equal_time_sequence"], rel=1e-4)


@pytest.mark.parametrize("name", PLAIN["published"]["normalised"])
def test_the_published_table_within_its_sampling(name: str) -> None:
    published = PLAIN["published"]
    law = parse_law(PLAIN["laws"][name]["law"])
    for strategy, value in zip(
        published["strategies"], published["normalised"][name], strict=True
    ):
        if [name, strategy] not in published["off"]:
            normalised_cost = request_sequence(strategy, law, RESERVED).normalised_cost
            assert normalised_cost == pytest.approx(value, rel=0.1), strategy


def test_closed_forms() -> None:
    def normalised(strategy: str, text: str) -> float:
        return request_sequence(strategy, parse_law(text), RESERVED).normalised_cost

    exact = 1e-9
    by_mean = 1 / (1 - np.exp(-1)) ** 2
    assert normalised("mean_by_mean", "exponential(1)") == pytest.approx(by_mean, rel=exact)
    assert normalised("mean_stdev", "exponential(3)") == pytest.approx(by_mean, rel=exact)
    halves = 4 * np.log(2)
    assert normalised("median_by_median", "exponential(2)") == pytest.approx(halves, rel=exact)
    assert normalised("mean_by_mean", "pareto(1.5,3)") == pytest.approx(9 / 5, rel=exact)
    for strategy in ("mean_by_mean", "median_by_median"):
        assert normalised(strategy, "uniform(10,20)") == pytest.approx(20 / 9, rel=exact)
    assert normalised("mean_doubling", "uniform(10,20)") == pytest.approx(5 / 3, rel=exact)


@settings(max_examples=20)
@given(costs())
def test_a_uniform_law_needs_one_request(cost: CostModel) -> None:
    law = parse_law("uniform(10,20)")
    best = cost.expected(law, [20.0])
    for strategy in ("brute_force", "equal_time", "equal_probability"):
        sequence = request_sequence(strategy, law, cost)
        assert sequence.milestones == (20.0,)
        assert sequence.expected_cost == pytest.approx(best)


def test_turnaround_of_a_segmentation() -> None:
    published = PLAIN["turnaround"]
    law = lognormal(published["sigma"], np.exp(published["mu_s"]) / 3600)
    cost = CostModel(published["alpha"], published["beta"], published["gamma"])
    assert cost.omniscient(law) == pytest.approx(published["omniscient"], rel=1e-5)
    for strategy, value in published["normalised"].items():
        sequence = request_sequence(strategy, law, cost)
        assert sequence.normalised_cost == pytest.approx(value, rel=ROUNDED), strategy
        if strategy == "brute_force":
            assert sequence.milestones[0] == pytest.approx(
                published["first_brute_force"], rel=1e-3
            )
        if strategy == "equal_time":
            published_sequence = published["equal_time_sequence"]
            assert sequence.milestones[: len(published_sequence)] == pytest.approx(
                published_sequence, rel=2e-3
            )


def test_the_worked_example_of_checkpoints() -> None:
    law = EmpiricalLaw([20.0] * 66 + [40.0] * 26 + [80.0] * 8)
    cost = CostModel(checkpoint=7, restart=7)
    assert cost.expected(law, [80]) == pytest.approx(80)
    assert cost.expected(law, [20, 80]) == pytest.approx(47.2)
    one_checkpoint = cost.expected(law, [20, 40, 80], [True, False, False])
    assert one_checkpoint == pytest.approx(41.54)
    # Published as 43.92: there the last request begins at 20, as if the checkpoint at 40 were
    # paid for and not used. By the paper's own formula it begins at 40.
    two = cost.expected(law, [20, 40, 80], [True, True, False])
    assert two + 0.08 * (40 - 20) == pytest.approx(43.92)
    assert one_checkpoint < two
    mixed = request_sequence("mixed_ckpt", law, cost, Settings(points=3))
    assert mixed.checkpoints == (False, True, False)
    assert mixed.lengths == (20, 47, 47)
    assert mixed.expected_cost == pytest.approx(20 + 0.34 * 47 + 0.08 * 47)


@pytest.mark.parametrize("name", CHECKPOINTS["laws"])
def test_with_checkpoints_as_computed_exactly(name: str) -> None:
    published = CHECKPOINTS["laws"][name]
    law = parse_law(published["law"])
    cost = CostModel(checkpoint=CHECKPOINTS["checkpoint"], restart=CHECKPOINTS["restart"])
    for strategy in ("all_ckpt", "no_ckpt"):
        sequence = request_sequence(strategy, law, cost)
        assert sequence.expected_cost == pytest.approx(published[strategy], rel=ROUNDED), strategy
    for checkpoints, strategy in ((True, "all_periodic"), (False, "no_periodic")):
        published_cost = published[strategy]
        sequence = request_sequence(strategy, law, cost)
        periods = counted(published_cost["periods"], "period")
        assert sequence.notes == (f"{periods}, the best of 1 to 1000",)
        ratio = sequence.expected_cost / published["mixed_ckpt"]
        assert ratio == pytest.approx(published_cost["ratio"], rel=ROUNDED), strategy
        one_period = cost.expected(law, *periodic(law, 1, checkpoints=checkpoints))
        assert one_period / published["mixed_ckpt"] == pytest.approx(
            published_cost["ratio_1"], rel=ROUNDED
        )


def test_equal_periods_are_optimal_for_an_exponential_law() -> None:
    law, cost = parse_law("exponential(1)"), CostModel(checkpoint=0.1, restart=0.1)
    every, periods = (
        request_sequence(name, law, cost).expected_cost for name in ("all_ckpt", "all_periodic")
    )
    assert periods == pytest.approx(every, rel=ROUNDED)


@settings(max_examples=40)
@given(laws(), costs(), st.sampled_from(list(STRATEGIES)))
def test_a_sequence_increases_covers_the_law_and_costs_at_least_the_runtime(
    law: Law, cost: CostModel, strategy: str
) -> None:
    try:
        sequence = request_sequence(strategy, law, cost, Settings(points=60))
    except ConfigError:  # brute force without a density, or with no first request that goes on
        assert strategy == "brute_force"
        return
    assert (np.diff(sequence.milestones) > 0).all()
    assert law.sf(sequence.milestones[-1]) <= 1.001e-7
    assert sequence.normalised_cost >= 1 - 1e-9
    assert sequence.normalised_cost == pytest.approx(sequence.expected_cost / cost.omniscient(law))
    assert len(sequence.lengths) == len(sequence.milestones)
    if sequence.checkpoints is None:
        assert sequence.lengths == sequence.milestones
    else:
        assert not sequence.checkpoints[-1]
    json.dumps([sequence.milestones, sequence.expected_cost], allow_nan=False)


@settings(max_examples=30)
@given(laws(), costs())
def test_mixed_checkpoints_cost_no_more_than_either_kind(law: Law, cost: CostModel) -> None:
    def expected(strategy: str, model: CostModel) -> float:
        return request_sequence(strategy, law, model, Settings(points=40)).expected_cost

    # The programme is exact for use of whole steps; beta is for what is used in truth, the same
    # for all but the part of a job in ten million that comes after the end.
    mixed, every, none = (expected(name, cost) for name in ("mixed_ckpt", "all_ckpt", "no_ckpt"))
    assert mixed <= min(every, none) * (1 + 1e-5)
    free = CostModel(cost.alpha, cost.beta, cost.gamma)
    assert expected("all_ckpt", free) == pytest.approx(expected("mixed_ckpt", free), rel=1e-5)
    dear = CostModel(cost.alpha, cost.beta, cost.gamma, 1e9, 1e9)
    assert expected("mixed_ckpt", dear) == pytest.approx(expected("no_ckpt", dear), rel=1e-9)


def test_a_heavy_tail_is_truncated_with_a_warning() -> None:
    law = parse_law("pareto(1.5,2.5)")
    sequence = request_sequence("mean_stdev", law, RESERVED)
    assert f"doubled after {MAX_REQUESTS} requests" in sequence.notes
    assert len(sequence.milestones) < MAX_REQUESTS
    cost = CostModel(checkpoint=0.1, restart=0.1)
    mixed = request_sequence("mixed_ckpt", parse_law("exponential(1)"), cost, Settings(points=50))
    assert "doubled after 16.1181, which one job in 10 million exceeds" in mixed.notes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 0, 0), "alpha: must be above 0"),
        ((-1, 0, 0), "alpha"),
        ((float("inf"), 0, 0), "alpha"),
        ((1, -1, 0), "beta: must be at least 0"),
        ((1, 0, float("nan")), "gamma"),
        ((1, 0, 0, -1), "checkpoint"),
        ((1, 0, 0, 0, -1), "restart"),
    ],
)
def test_an_invalid_price_is_refused(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CostModel(*values)


@pytest.mark.parametrize(
    ("strategy", "law", "cost", "problem"),
    [
        ("guess", normal(9, 1), RESERVED, "guess: unknown strategy; choose from brute_force"),
        ("brute_force", EmpiricalLaw([1, 2]), RESERVED, "brute_force: needs a law with a density"),
        ("mean_by_mean", normal(1, 1), RESERVED, "negative lengths"),
        ("equal_time", parse_law("exponential(1)"), CostModel(1e308, 0, 1e308), "of a double"),
        *((name, parse_law("pareto(1.5,2)"), RESERVED, f"{name}: needs a finite")
          for name in ("brute_force", "mean_stdev")),
    ],
)  # fmt: skip
def test_unsupported_strategies_are_refused(
    strategy: str, law: Law, cost: CostModel, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        request_sequence(strategy, law, cost)


@pytest.mark.parametrize("shape", [1.05, 1.5])
def test_the_cost_of_a_heavy_tail_matches_its_series(shape: float) -> None:
    law = parse_law(f"pareto(1,{shape})")
    exact = 1 + 2 * law.mean**-shape / (1 - 2 ** (1 - shape))
    sequence = request_sequence("mean_doubling", law, RESERVED)
    assert sequence.normalised_cost == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pareto(1,1.001)", "out of the range of a double"),
        ("lognormal(0,21)", "out of the range of a double"),
        *((text, "its mean or its end is out of range")
          for text in ("exponential(1e120)", "exponential(1e-120)", "uniform(1e-200,1e-199)",
                       "lognormal(0,25)")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strategy", ["mean_by_mean", "mean_doubling", "equal_time"])
def test_sizes_and_tails_that_overflow_are_refused(text: str, problem: str, strategy: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        request_sequence(strategy, parse_law(text), RESERVED)


def test_a_request_far_below_the_mean_is_doubled_up_to_it() -> None:
    law = parse_law("gamma(1e-4,1)")
    assert RESERVED.expected(law, [5e-324]) == pytest.approx(
        RESERVED.expected(law, np.ldexp(5e-324, np.arange(1100))), rel=1e-9
    )
    for strategy in ("median_by_median", "mean_doubling", "equal_probability"):
        assert request_sequence(strategy, law, RESERVED).normalised_cost > 1
