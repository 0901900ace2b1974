"""The programmes against recursions and searches that share nothing with them."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.programme import (
    RequestGrid,
    all_checkpoints,
    equal_probability,
    equal_time,
    grid_of,
    mixed_checkpoints,
    without_checkpoints,
)
from voxcast.laws.families import EmpiricalLaw, parse_law

PROGRAMMES = {
    "mixed": (mixed_checkpoints, (False, True)),
    "all": (all_checkpoints, (True,)),
    "none": (without_checkpoints, (False,)),
}


def plain_recursion(grid: RequestGrid, cost: CostModel, kinds: tuple[bool, ...]) -> float:
    """Follow the definition: from the last checkpoint and the last point tried, given these."""
    v = [0.0, *grid.points.tolist()]
    more = [1.0, *grid.survival.tolist()]
    n = len(v) - 1

    @cache
    def best(saved: int, tried: int) -> float:
        if tried == n or more[tried] <= 0:
            return 0.0
        restart = cost.restart if saved else 0.0
        least, used = np.inf, 0.0
        for j in range(tried + 1, n + 1):
            used += (more[j - 1] - more[j]) / more[tried] * (restart + v[j] - v[saved])
            later = more[j] / more[tried]
            for checkpoint in kinds if j < n else (False,):
                length = restart + v[j] - v[saved] + cost.checkpoint * checkpoint
                after = best(j if checkpoint else saved, j) if later > 0 else 0.0
                price = cost.alpha * length + cost.gamma + cost.beta * used
                least = min(least, price + later * (cost.beta * length + after))
        return least

    for tried in range(n, -1, -1):  # so that no call goes deep
        for saved in range(tried + 1):
            if True in kinds and False not in kinds and saved != tried:
                continue
            if True not in kinds and saved:
                continue
            best(saved, tried)
    return best(0, 0)


@pytest.mark.parametrize("kind", PROGRAMMES)
@pytest.mark.parametrize(
    "text", ["exponential(1)", "weibull(1,0.5)", "truncnormal(8,2,1,20)", "uniform(1,20)",
             "beta(2,2)", "boundedpareto(1,20,2.1)"],
)  # fmt: skip
def test_the_value_is_that_of_the_plain_recursion(text: str, kind: str) -> None:
    programme, kinds = PROGRAMMES[kind]
    for discretise in (equal_time, equal_probability):
        grid = discretise(parse_law(text), 30)
        for cost in (CostModel(1, 0, 0, 0.1, 0.1), CostModel(0.95, 1, 0.4, 0.3, 0.05)):
            optimum = programme(grid, cost)
            assert optimum.value == pytest.approx(plain_recursion(grid, cost, kinds), rel=1e-12)


price = st.floats(0, 4)


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.5, 50), min_size=1, max_size=12),
    st.builds(CostModel, st.floats(0.1, 3), price, price, price, price),
)
def test_no_other_sequence_costs_less(values: list[float], cost: CostModel) -> None:
    law = EmpiricalLaw(np.round(values, 1)[:5])
    grid = equal_probability(law, 1000)
    n = len(grid.points)
    for programme, kinds in PROGRAMMES.values():
        best = min(
            cost.expected(law, grid.points[[*indices, n - 1]], [*flags, False])
            for count in range(n)
            for indices in itertools.combinations(range(n - 1), count)
            for flags in itertools.product(kinds, repeat=count)
        )
        optimum = programme(grid, cost)
        assert optimum.value == pytest.approx(best)
        assert cost.expected(law, optimum.milestones, optimum.checkpoints) == pytest.approx(best)


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=20),
    st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), min_size=1, max_size=6),
    st.builds(CostModel, st.floats(0.1, 3), price, price, price, price),
)
def test_the_closed_form_is_the_mean_over_runs(
    values: list[float], requests: list[tuple[float, bool]], cost: CostModel
) -> None:
    law = EmpiricalLaw(values)
    steps = sorted({t: flag for t, flag in requests if t < max(values)}.items())
    milestones = [*(t for t, _ in steps), max(values)]
    flags = [*(flag for _, flag in steps), False]

    def paid(length: float) -> float:
        total, saved = 0.0, 0.0
        for t, flag in zip(milestones, flags, strict=True):
            restart = cost.restart if saved else 0.0
            request = restart + t - saved + cost.checkpoint * flag
            used = request if length > t else restart + length - saved
            total += cost.alpha * request + cost.beta * used + cost.gamma
            if length <= t:
                break
            saved = t if flag else saved
        return total

    mean = float(np.mean([paid(length) for length in values]))
    assert cost.expected(law, milestones, flags) == pytest.approx(mean)


def test_a_sequence_that_ends_too_soon_is_doubled() -> None:
    law = EmpiricalLaw([1.0, 3.0, 7.0])
    assert CostModel().expected(law, [1.0]) == CostModel().expected(law, [1.0, 2, 4, 7])
    light = parse_law("exponential(1)")
    far = 2.0 ** np.arange(12)
    assert CostModel().expected(light, [1.0]) == pytest.approx(CostModel().expected(light, far))


def test_points_of_a_law() -> None:
    law = parse_law("uniform(10,20)")
    np.testing.assert_allclose(equal_time(law, 4).points, [12.5, 15, 17.5, 20])
    np.testing.assert_allclose(equal_probability(law, 4).survival, [0.75, 0.5, 0.25, 0])
    grid = equal_time(parse_law("exponential(1)"), 10)
    assert grid.points[-1] == pytest.approx(-np.log(1e-7))
    assert grid.survival[-1] == 0
    sample = equal_probability(EmpiricalLaw([3, 1, 1, 2]), 1000)
    assert sample.points.tolist() == [1, 2, 3]
    np.testing.assert_allclose(sample.survival, [0.5, 0.25, 0], atol=1e-12)
    assert sample.mean == pytest.approx(1.75)
    assert grid_of(law, np.array([15.0])).survival.tolist() == [0]
