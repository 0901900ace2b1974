"""Served predictions are those of the forecaster for the same features."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planted
from champions import HEADER_ROW, bundle_of_apps
from voxcast.errors import ModelError
from voxcast.features.rows import features
from voxcast.images.characteristics import characteristics
from voxcast.images.volumes import CoarseVolume, coarse_from_bytes, coarse_to_bytes
from voxcast.models.forecaster import Forecaster
from voxcast.models.query import Query
from voxcast.records import TARGETS, Configuration
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.request_rows import header_of


@pytest.fixture
def volume() -> bytes:
    shape = (60, 64, 50)
    voxels = np.random.default_rng(0).uniform(0, 100, shape).astype(np.float32)
    return coarse_to_bytes(CoarseVolume(voxels, (1, 1, 1), shape, (2.0, 2.0, 2.0), "RAS"))


def quantiles(row: Any) -> dict[str, tuple[float, ...]]:
    return {
        target: tuple(row[f"{target}_{name}"] for name in ("lower", "median", "upper"))
        for target in TARGETS
    }


def predictions(
    service: PredictionService,
    rows: Sequence[dict[str, Any]],
    quantile: float = 0.95,
    *,
    explain: bool = False,
) -> pd.DataFrame:
    return pd.DataFrame(service.predict(rows, quantile, explain=explain))


def test_predictions_are_those_of_the_forecaster(
    service: PredictionService, forecaster: Forecaster, volume: bytes
) -> None:
    rows = [HEADER_ROW, {**HEADER_ROW, "cpus": 2.0, "volume": volume}]
    table = predictions(service, rows, 0.9)
    header = header_of(HEADER_ROW)
    content = characteristics(coarse_from_bytes(volume, header, 64))
    for n, (cpus, contents) in enumerate(((1, None), (2, content))):
        row = features(
            header.columns(), contents, "segment", planted.PARAMETERS, Configuration("cpu", cpus)
        )
        (prediction,) = forecaster.predict(
            [Query(row, cpus)], lower_quantile=1 - 0.9, upper_quantile=0.9
        )
        assert quantiles(table.iloc[n]) == prediction.quantiles
        assert table["input_level"][n] == prediction.input_level
        assert table["calibrated"][n] == prediction.calibrated
        assert table["out_of_range"][n].split() == list(prediction.out_of_range)
    assert table["input_level"].tolist() == ["header", "volume"]
    assert table["cpus"].tolist() == [1.0, 2.0]
    assert "because" not in table


def test_rows_do_not_depend_on_each_other(service: PredictionService, volume: bytes) -> None:
    row = {**HEADER_ROW, "volume": volume}
    finer = {**row, "spacing_i_mm": 1.0, "spacing_j_mm": 1.0, "spacing_k_mm": 1.0}
    together = predictions(service, [row, finer])
    alone = [predictions(service, [r]) for r in (row, finer)]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True))


def test_an_explanation_names_features(service: PredictionService, volume: bytes) -> None:
    table = predictions(service, [{**HEADER_ROW, "volume": volume}], explain=True)
    reasons = json.loads(table["because"][0])
    assert reasons
    assert set(reasons[0]) == {"name", "factor", "value", "usual", "text"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"app": "unheard"}, "row 1: unheard: unknown application; the model has segment"),
        ({"device": "tpu"}, "row 1: tpu: unknown device; the model has cpu"),
        ({"shape_i": -3.0}, "row 1: shape_i: must be between"),
        ({"volume": b"not an array"}, "row 1: volume: not a .npy array"),
        ({"parameters_json": "[1"}, "row 1: parameters_json: not JSON"),
    ],
)
def test_an_invalid_request_is_refused_with_its_row(
    service: PredictionService, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        predictions(service, [HEADER_ROW, {**HEADER_ROW, **change}])


def test_a_volume_of_another_size_is_refused(service: PredictionService, volume: bytes) -> None:
    row = {**HEADER_ROW, "shape_i": 61.0, "volume": volume}
    with pytest.raises(ModelError, match="row 0: volume: its shape is"):
        predictions(service, [row])


def test_an_answer_out_of_range_says_in_what(service: PredictionService) -> None:
    huge = {**HEADER_ROW, "shape_i": 900.0, "shape_j": 900.0, "shape_k": 900.0, "cpus": 16.0}
    usual = {**HEADER_ROW, "shape_i": 80.0, "shape_j": 80.0, "shape_k": 80.0}
    answers = predictions(service, [usual, huge])
    assert answers["out_of_range_reason"][0] == ""
    cpus, volume = answers["out_of_range_reason"][1].split("; ")
    assert cpus == "16 CPUs were not measured (1 to 2 were)"
    assert re.fullmatch(
        r"this volume is \d+\.\d times larger than any that was measured "
        r"\(729 million voxels, at most [\d.]+ million\)",
        volume,
    )


def test_each_row_is_predicted_by_the_forecaster_of_its_application(
    tmp_path: Path, service: PredictionService
) -> None:
    bundle = bundle_of_apps(tmp_path, 20, "segment", "tile")
    both = PredictionService(bundle)
    rows = [{**HEADER_ROW, "app": app} for app in ("tile", "segment", "tile")]
    table = predictions(both, rows, 0.9)
    assert table["app"].tolist() == ["tile", "segment", "tile"]
    alone = predictions(service, rows[1:2], 0.9)
    pd.testing.assert_frame_equal(table.iloc[[1]].reset_index(drop=True), alone)
    pd.testing.assert_series_equal(table.iloc[0], table.iloc[2], check_names=False)
    with pytest.raises(ModelError, match=r"row 0: app: which .* one of segment, tile"):
        predictions(both, [HEADER_ROW])
