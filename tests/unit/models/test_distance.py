"""How far a query is from what was measured, and what that adds to its bounds."""

import math

import pytest

import planted
from voxcast.models import point_model
from voxcast.models.distance import MOST, Distance, distances, side_name
from voxcast.models.families.family import FAMILIES
from voxcast.models.query import Query, queries_of

SIZE = "content.foreground_megavoxels"


@pytest.fixture(scope="module")
def model() -> point_model.PointModel:
    table = planted.table(12)
    return point_model.fit(table, None, "ridge", FAMILIES["ridge"].defaults, "volume", 0)


def changed(**features: float | str) -> Query:
    query = queries_of(planted.table(12))[0]
    names = {name.replace("__", "."): value for name, value in features.items()}
    return Query(query.features | names, query.cpus)


def test_a_query_within_the_range_has_no_distance(model: point_model.PointModel) -> None:
    assert distances(model, [changed()]) == [Distance({}, 0.0)]


def test_the_distance_in_a_size_is_the_ratio_to_the_end(model: point_model.PointModel) -> None:
    low, high = model.range.numbers[SIZE]
    for value in (4 * high, low / 4):
        (far,) = distances(model, [changed(content__foreground_megavoxels=value)])
        assert far.by_side == {side_name(SIZE, is_high=value > high): pytest.approx(math.log(4))}
        assert far.unknown == 0


def test_of_a_value_that_is_missing_nothing_is_known(model: point_model.PointModel) -> None:
    (far,) = distances(model, [changed(content__foreground_megavoxels=math.nan)])
    assert far == Distance({}, MOST)


@pytest.mark.parametrize(
    ("features", "factor"),
    [
        ({"allocation__log2_cpus": 3.0}, 4.0),  # eight CPUs, two were measured
        ({"parameter__iterations": 33.0}, 1.1**3),
        ({"parameter__iterations": 300.0}, 10.0),
        ({"device": "gpu"}, 10.0),
        ({"device": "gpu", "allocation__log2_cpus": 5.0}, 10.0),
    ],
)
def test_a_feature_without_a_measured_effect_may_account_for_a_factor(
    model: point_model.PointModel, features: dict, factor: float
) -> None:
    (far,) = distances(model, [changed(**features)])
    assert far.by_side == {}
    assert math.exp(far.unknown) == pytest.approx(factor)
    assert far.unknown <= MOST
