"""What moved a prediction, on a planted law."""

import pytest

import planted
from voxcast.features.table import rows_of
from voxcast.models import point_model
from voxcast.models.explanation import explain
from voxcast.models.families.zoo import FAMILIES
from voxcast.models.forecaster import Forecaster, calibrate
from voxcast.models.selection.cross_validation import Validation


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    table = planted.table(40)
    defaults = FAMILIES["ridge"].defaults
    model = point_model.fit(table, None, "ridge", defaults, "volume", 0)
    logs = Validation(table, None, 3, 0).out_of_fold("ridge", defaults, "volume")
    return Forecaster({"volume": calibrate(model, table, logs, 1.5)})


def test_the_foreground_is_named_first_where_it_is_what_is_unusual(forecaster: Forecaster) -> None:
    table = planted.table(40)
    row = dict(rows_of(table)[0])
    usual = forecaster.usual(row, None)
    row |= usual
    row["content.foreground_megavoxels"] = 2 * usual["content.foreground_megavoxels"]
    (first, *_) = found = explain(forecaster, row, 1, None)
    assert first.name == "foreground_voxels"
    assert first.factor > 1.2
    assert first.value == pytest.approx(2 * first.usual)
    assert len(found) == 1  # nothing else is unusual


def test_a_usual_run_needs_no_reason(forecaster: Forecaster) -> None:
    row = dict(rows_of(planted.table(40))[0])
    row |= forecaster.usual(row, None)
    assert explain(forecaster, row, 1, None) == []
