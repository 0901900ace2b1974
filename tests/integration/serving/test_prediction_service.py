"""Served predictions are those of the forecaster for the same features."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planted
from champions import HEADER_ROW, PROMOTION, bundle_of_apps
from voxcast.errors import ModelError
from voxcast.features.rows import features
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.network_volume import network_to_bytes, volume_dtype
from voxcast.models.forecaster import Forecaster
from voxcast.models.point_model import Query
from voxcast.records import TARGETS, Configuration
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import Row
from voxcast.serving.signature import OUTPUT_TYPES


@pytest.fixture
def contents() -> dict[str, float]:
    """Return characteristics such as those that `planted` has."""
    values = dict.fromkeys(CHARACTERISTICS, 0.3)
    return {**values, "foreground_voxels": 60_000.0, "foreground_ml": 480.0}


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
    service: PredictionService, forecaster: Forecaster, contents: dict[str, float]
) -> None:
    rows = [HEADER_ROW, {**HEADER_ROW, "cpus": 2.0, **contents}]
    table = predictions(service, rows, 0.9)
    header = Row.of(HEADER_ROW).header
    for n, (cpus, known) in enumerate(((1, None), (2, contents))):
        row = features(
            header.columns(), known, "segment", planted.PARAMETERS, Configuration("cpu", cpus)
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
    assert table["because"].tolist() == ["", ""]
    assert table["calibrated_at"].tolist() == 2 * [PROMOTION.promoted_at]
    assert list(table) == list(OUTPUT_TYPES)


def test_a_model_with_a_network_wants_the_small_volume(
    tmp_path: Path, contents: dict[str, float]
) -> None:
    service = PredictionService(bundle_of_apps(tmp_path, 6, "segment", name="cnn"))
    header_only, without = predictions(service, [HEADER_ROW, {**HEADER_ROW, **contents}]).to_dict(
        "records"
    )
    assert header_only["network_points"] == without["network_points"] == 16
    assert without["input_level"] == "header"
    volume = planted.volumes(planted.table(1), 16)[0]
    row = {**HEADER_ROW, **contents, "volume": network_to_bytes(volume)}
    assert predictions(service, [row])["input_level"][0] == "volume"
    with pytest.raises(ModelError, match="row 0: volume: is not a cube of 16 points"):
        predictions(service, [{**row, "volume": network_to_bytes(np.zeros((), volume_dtype(8)))}])


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


@pytest.mark.parametrize("quantile", [None, "0.9", 0.5, 1.0, float("nan")])
def test_a_quantile_of_no_upper_bound_is_refused(
    service: PredictionService, quantile: Any
) -> None:
    with pytest.raises(ModelError, match=r"quantile: must be above 0\.5 and below 1, not"):
        service.predict([HEADER_ROW], quantile)
