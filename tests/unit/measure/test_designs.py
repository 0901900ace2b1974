import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcast.errors import ConfigError
from voxcast.measure.plan import latin_hypercube


@given(count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_each_stratum_of_each_range_holds_one_point(count, seed):
    values = {
        "linear": {"low": -1.0, "high": 3.0},
        "log": {"low": 1e-4, "high": 1e2, "log": True},
    }
    points = latin_hypercube(values, count, seed)
    linear = sorted((point["linear"] + 1) / 4 * count for point in points)
    log = sorted((math.log10(point["log"]) + 4) / 6 * count for point in points)
    for stratum in range(count):
        for drawn in (linear[stratum], log[stratum]):
            assert stratum - 1e-3 <= drawn <= stratum + 1 + 1e-3  # values are rounded


@given(count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_list_values_are_balanced_and_integers_stay_integers(count, seed):
    values = {"net": ["a", "b", "c"], "layers": {"low": 1, "high": 6}}
    points = latin_hypercube(values, count, seed)
    times = [sum(point["net"] == net for point in points) for net in "abc"]
    assert max(times) - min(times) <= 1
    assert {type(point["layers"]) for point in points} == {int}
    assert {point["layers"] for point in points} <= set(range(1, 7))
    if count % 6 == 0:
        assert {point["layers"] for point in points} == set(range(1, 7))


def test_points_are_fixed_by_seed_name_and_count():
    # Other numbers would be other cells, and recorded runs would not be found again.
    values = {"rate": {"low": 0.0, "high": 1.0}, "net": ["a", "b"]}
    assert latin_hypercube(values, 2, [1, "app"]) == [
        {"rate": 0.699493, "net": "a"},
        {"rate": 0.351137, "net": "b"},
    ]
    alone = latin_hypercube({"rate": values["rate"]}, 2, [1, "app"])
    assert [point["rate"] for point in alone] == [0.699493, 0.351137]


@pytest.mark.parametrize(
    "choice", [[], {"low": 2, "high": 1}, {"low": 0, "high": 1, "log": True}, 3, {"low": 1}, "ab"]
)
def test_values_that_are_neither_list_nor_range_are_refused(choice):
    with pytest.raises(ConfigError, match="rate"):
        latin_hypercube({"rate": choice}, 3, 1)
