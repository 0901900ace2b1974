"""Prices and bills: HARP's published arithmetic without its slips, and what a site's rule adds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcast.allocation.requests.cost import CostModel
from voxcast.allocation.requests.replay import PlannedRequests, replay
from voxcast.allocation.site import Billing, NodeType, Prices, Waiting, stepped

# Table 1 of Vallabhajosyula and Ramnath, PEARC 2023 (doi 10.1145/3569951.3597607): cores and GPUs,
# seconds that the run took and that were predicted, dollars as printed for both, and for doubling
# after each failure. One cell is printed as .57, which its 1181 s make .057.
TABLE_1 = [
    ((48, 1), 685, 180, 0.0445, 0.012, [180, 360, 685], 0.080),
    ((28, 1), 516, 95, 0.0249, 0.005, [95, 190, 380, 516], 0.057),
    ((10, 1), 516, 103, 0.0172, 0.003, [103, 206, 412, 516], 0.041),
]


@pytest.mark.parametrize(
    ("allocation", "actual_s", "predicted_s", "actual_usd", "predicted_usd", "tries", "usd"),
    TABLE_1,
)
def test_the_published_table(
    allocation: tuple[int, int],
    actual_s: int,
    predicted_s: int,
    actual_usd: float,
    predicted_usd: float,
    tries: list[int],
    usd: float,
) -> None:
    node = NodeType("n", 48, 10**11, 1, Prices())
    bill = Billing(time_step_s=1.0)
    assert Prices().of(actual_s, *allocation) == pytest.approx(actual_usd, abs=5e-5)
    assert Prices().of(predicted_s, *allocation) == pytest.approx(predicted_usd, abs=5e-4)
    doubled = replay(PlannedRequests(np.array([[float(predicted_s)]])), [actual_s], CostModel())
    assert (doubled.attempts.item(), doubled.busy_s.item()) == (len(tries), sum(tries))
    retried = sum(bill.usd(node, *allocation, 0.0, attempt_s).item() for attempt_s in tries)
    assert retried == pytest.approx(usd, abs=5e-4)
    assert retried == pytest.approx(Prices().of(sum(tries), *allocation))


def test_memory_scales_with_cores() -> None:
    # OSC's own example on a node of 40 cores with 4556 MB each.
    node = NodeType("pitzer", 40, 40 * 4556 * 10**6)
    rule = Billing(memory_follows_cores=True)
    memory = np.array([0.0, 4556e6, 4557e6, 14283e6, 40 * 4556e6])
    assert rule.billed_cores(node, 1, memory).tolist() == [1, 1, 2, 4, 40]
    assert rule.billed_cores(node, 5, memory).tolist() == [5, 5, 5, 5, 40]
    assert Billing().billed_cores(node, 5, memory).tolist() == [5] * 5
    few, many = (rule.usd(node, cpus, 0, 4e9, 3600.0).item() for cpus in (5, 28))
    assert many / few == pytest.approx(28 / 5)  # asking for fewer cores saves


def test_steps_minimum_and_whole_nodes() -> None:
    node = NodeType("n", 8, 32 * 10**9, 2, Prices(0.01, 0.5, 0.001))
    rule = Billing(time_step_s=60.0, minimum_s=120.0, core_step=4)
    assert rule.billed_s([1, 60, 120, 121, 180]).tolist() == [120, 120, 120, 180, 180]
    assert rule.billed_cores(node, 5, 0.0) == 8
    assert rule.usd(node, 1, 1, 10**10, 3600).item() == pytest.approx(0.04 + 0.5 + 0.01)
    whole_node = Billing(whole_node=True)
    assert whole_node.usd(node, 1, 0, 10**9, 7200).item() == pytest.approx(
        2 * (0.08 + 1.0 + 0.032)
    )


@given(
    st.floats(0.01, 1e7), st.sampled_from([0.0, 1.0, 60.0, 3600.0]), st.floats(0, 1e4),
    st.floats(0, 3e11), st.integers(1, 48), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_bill_is_never_below_the_plain_price(
    seconds: float,
    step: float,
    least: float,
    memory: float,
    cpus: int,
    follows: bool,
    whole_node: bool,
) -> None:
    node = NodeType("n", 48, 192 * 10**9, 1, Prices(0.003, 0.09, 0.001))
    memory = min(memory, node.memory_bytes)
    rule = Billing(follows, whole_node, 1, step, least)
    billed = rule.usd(node, cpus, 0, memory, seconds).item()
    assert billed >= node.prices.of(seconds, cpus, 0, memory) * (1 - 1e-9)
    assert billed <= rule.usd(node, cpus, 0, memory, seconds + 1).item()
    assert rule.billed_cores(node, cpus, memory) <= node.cores


@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 60.0]))
def test_whole_steps_are_not_rounded_up_again(count: int, step: float) -> None:
    assert stepped(count * step, step) == pytest.approx(count * step)


def test_a_request_never_waits_a_negative_time() -> None:
    # 204 processors of Aupy et al., IPDPS 2019: a negative constant is possible.
    assert Waiting(1.16, -1290.38).of([100.0, 3600.0]).tolist() == pytest.approx([0.0, 2885.62])
