"""A table in parts, as a Spark UDF gives it: pandas batches are answered as the whole table is."""

from __future__ import annotations

from collections.abc import Callable

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel

from champions import HEADER_ROW
from registries import logged_model
from voxcast.api.model import Model
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.signature import OUTPUT_TYPES

CONTENTS = {
    **dict.fromkeys(CHARACTERISTICS, 0.3), "foreground_voxels": 60_000.0, "foreground_ml": 480.0,
}  # fmt: skip
DTYPES = {"string": "object", "double": "float64", "long": "int64", "boolean": "bool"}


@pytest.fixture(scope="module")
def model(project) -> PyFuncModel:
    return mlflow.pyfunc.load_model(str(logged_model(project)))


@pytest.fixture(scope="module")
def python(project) -> Model:
    return Model(PredictionService.of_project(project))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return rows with and without characteristics, host and parameters, and one out of range."""
    rng = np.random.default_rng(0)
    rows = [
        {**HEADER_ROW, "shape_i": float(rng.integers(50, 160)), "cpus": float(1 + n % 2)}
        for n in range(12)
    ]
    for row in rows[::3]:
        row |= CONTENTS
    rows[4] |= {"host": "elsewhere", "parameters_json": '{"iterations": 45}'}
    rows[7]["shape_k"] = 5000.0
    return pd.DataFrame(rows)


def assert_same(answers: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        answers.reset_index(drop=True), expected.reset_index(drop=True), rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("sizes", [(12,), (1,) * 12, (5, 0, 7), (0, 11, 1)])
def test_parts_are_answered_as_the_whole(
    model: PyFuncModel, table: pd.DataFrame, sizes: tuple[int, ...]
) -> None:
    ends = np.cumsum(sizes)
    parts = [table.iloc[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    answers = pd.concat([model.predict(part) for part in parts])
    assert_same(answers, model.predict(table))


def test_an_empty_part_has_the_columns_and_types_of_others(
    model: PyFuncModel, python: Model, table: pd.DataFrame
) -> None:
    answers = model.predict(table)
    for empty in (model.predict(table.iloc[:0]), python.predict(table.iloc[:0])):
        assert empty.dtypes.to_dict() == answers.dtypes.to_dict()
    assert {n: str(t) for n, t in answers.dtypes.items()} == {
        name: DTYPES[kind] for name, kind in OUTPUT_TYPES.items()
    }


def test_a_part_may_lack_optional_columns(model: PyFuncModel, table: pd.DataFrame) -> None:
    """Spark gives all columns; pandas may not have those that are empty in a part."""
    part = table.iloc[1:3]
    assert_same(model.predict(part.dropna(axis="columns")), model.predict(part))
    with pytest.raises(MlflowException, match=r"missing inputs \['dtype'\]"):
        model.predict(table.drop(columns="dtype"))


FLOATS = ("spacing_i_mm", "spacing_j_mm", "spacing_k_mm", "cpus")
WHOLE = ("shape_i", "shape_j", "shape_k", "cpus")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.astype(dict.fromkeys(FLOATS, "float32")),
        lambda t: t.astype(dict.fromkeys(WHOLE, "int32")),
        lambda t: t.assign(dtype=t["dtype"].astype("string")),
    ],
    ids=["float32", "int32", "string"],
)
def test_narrower_types_are_answered_as_doubles(
    model: PyFuncModel,
    python: Model,
    table: pd.DataFrame,
    change: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    # The values of these columns are exact in the narrower types.
    assert_same(model.predict(change(table)), model.predict(table))
    assert_same(python.predict(change(table)), python.predict(table))


def test_missing_values_of_nullable_columns_are_left_out(
    python: Model, table: pd.DataFrame
) -> None:
    nullable = table.convert_dtypes()
    assert {str(dtype) for dtype in nullable.dtypes} >= {"Int64", "Float64"}
    assert nullable["foreground_ml"].isna().any()
    assert_same(python.predict(nullable), python.predict(table))
