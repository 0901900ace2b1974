"""What moved a prediction, on a planted law."""

import pytest

import planted
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.explanation import explain
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.query import Query, queries_of
from voxcast.models.selection.cross_validation import Validation


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    table = planted.table(40)
    defaults = FAMILIES["ridge"].defaults
    model = point_model.fit(table, None, "ridge", defaults, "volume", 0)
    out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", defaults, "volume")
    return Forecaster({"volume": calibrate(model, table, out_of_fold, 1.5)})


def at_medians(forecaster: Forecaster) -> Query:
    query = queries_of(planted.table(40))[0]
    return Query({**query.features, **forecaster.medians(query)}, 1)


def test_an_unusual_foreground_is_the_first_reason(forecaster: Forecaster) -> None:
    query = at_medians(forecaster)
    medians = forecaster.medians(query)
    query.features["content.foreground_megavoxels"] = 2 * medians["content.foreground_megavoxels"]
    (first, *others) = explain(forecaster, query)
    assert first.name == "foreground_voxels"
    assert first.factor > 1.2
    assert first.value == pytest.approx(2 * first.usual)
    assert not others  # nothing else is unusual


def test_a_typical_run_has_no_reasons(forecaster: Forecaster) -> None:
    assert explain(forecaster, at_medians(forecaster)) == []
