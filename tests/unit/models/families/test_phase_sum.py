"""The family of phases: planted costs are found, and continue where nothing was measured."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import planted
from voxcast.errors import ModelError
from voxcast.features.phase_labels import COLUMN
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.families.formulas import LogSum, PhaseTime
from voxcast.models.point_model import PointModel, predict_table
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import learn

TARGETS = ("cpu_s", "peak_rss_bytes")


def fitted(table, input_level="volume", **params) -> PointModel:
    params = {**FAMILIES["phases"].defaults, **params}
    return point_model.fit(table, None, "phases", params, input_level, 0, TARGETS)


def terms(model: PointModel) -> dict[str, PhaseTime]:
    regressor = model.members[0].regressor
    formula = regressor.formulas_[0]
    assert isinstance(formula, LogSum)
    return dict(zip(("rest", "segment", "start"), formula.terms, strict=True))


@pytest.mark.parametrize("powers", [True, False])
def test_the_time_of_each_phase_is_found(powers: bool) -> None:
    table = planted.table(40, noise=0.01)
    by_phase = terms(fitted(table, powers=powers))
    assert by_phase["start"].constant == pytest.approx(0.75, rel=0.05)
    assert by_phase["rest"].constant == pytest.approx(0.25, rel=0.05)
    segment = by_phase["segment"]
    usual = np.exp(np.median(table["content.log_foreground_voxels"]))
    assert segment.constant + segment.seconds.sum() == pytest.approx(4e-6 * usual, rel=0.05)
    assert segment.power == pytest.approx(1.0, abs=0.05)


def test_the_sum_continues_far_beyond_the_sizes_that_were_measured() -> None:
    table = planted.table(60)
    size = table["content.foreground_megavoxels"]
    small, large = table[size < size.quantile(0.6)], table[size > size.quantile(0.9)]
    model = fitted(small.reset_index(drop=True))
    errors = predict_table(model, large, None) - np.log(large[list(TARGETS)])
    assert np.abs(errors["cpu_s"]).mean() < 0.03
    ridge = FAMILIES["ridge"].defaults
    assert np.abs(errors["peak_rss_bytes"]).mean() < 0.1
    plain = point_model.fit(small, None, "ridge", {**ridge, "scale": "log"}, "volume", 0, TARGETS)
    others = predict_table(plain, large, None)[:, 0] - np.log(large["cpu_s"])
    assert np.abs(errors["cpu_s"]).mean() < np.abs(others).mean()


def test_runs_without_labels_count_for_the_sum_only() -> None:
    table = planted.table(40)
    table.loc[::3, COLUMN] = ""
    errors = predict_table(fitted(table), table, None) - np.log(table[list(TARGETS)])
    assert np.abs(errors["cpu_s"]).mean() < 0.02


def test_from_the_header_alone_the_grid_stands_for_the_mask() -> None:
    table = planted.table(40)
    model = fitted(table, "header")
    columns = model.members[0].encoder.columns
    segment = terms(model)["segment"]
    assert [columns[n] for n in segment.sizes] == ["header.log_voxels"]


def test_without_labels_the_family_is_left_out_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = planted.table(12)
    families = ("median", "phases")
    with caplog.at_level(logging.INFO):
        validation = Validation(table.drop(columns=COLUMN), None, 3, 0)
        board = learn(validation, families, trials=1)
    assert "phases" not in board.params
    assert "segment: no model by phase" in caplog.text
    assert "phases" in learn(Validation(table, None, 3, 0), families, trials=1).params
    with pytest.raises(ModelError, match="no CPU times by phase"):
        fitted(table.drop(columns=COLUMN))
