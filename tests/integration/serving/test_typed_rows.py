"""Rows of requests as JSON, files and Python have them."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from champions import HEADER_ROW
from voxcast.errors import RowError
from voxcast.serving.rows import typed_rows

NPY = b"\x93NUMPY"
DEEP = json.loads("[" * 900 + "]" * 900)
for _ in range(900):
    DEEP = [DEEP]


def test_values_have_the_types_of_the_signature() -> None:
    row = {**HEADER_ROW, "cpus": "2", "shape_i": 60, "volume": "AP8=", "texture": 1, "host": None,
           "unheard": [], "noise_ratio": float("nan"), "obliqueness_deg": "nan"}  # fmt: skip
    expected = {**HEADER_ROW, "cpus": 2.0, "shape_i": 60.0, "volume": b"\x00\xff", "texture": 1.0}
    (typed,) = typed_rows([row], ("texture",))
    assert typed == expected
    assert isinstance(typed["shape_i"], float)


@pytest.mark.parametrize("value", [2, 2.0, "2", " 2e0 ", Decimal(2), np.int64(2), np.float32(2)])
def test_a_number_is_written_in_any_type_of_numbers(value: Any) -> None:
    (typed,) = typed_rows([{**HEADER_ROW, "cpus": value}], ())
    assert (typed["cpus"], type(typed["cpus"])) == (2.0, float)


@pytest.mark.parametrize("value", ["k05VTVBZ", NPY, bytearray(NPY), memoryview(NPY)])
def test_a_volume_is_bytes_or_text_in_base64(value: Any) -> None:
    (typed,) = typed_rows([{**HEADER_ROW, "volume": value}], ())
    assert (typed["volume"], type(typed["volume"])) == (NPY, bytes)


def test_missing_values_are_left_out_of_columns_of_any_type() -> None:
    for missing in (None, float("nan"), np.float64("nan")):
        columns = dict.fromkeys(("cpus", "host", "volume", "noise_ratio"), missing)
        assert typed_rows([{**HEADER_ROW, **columns}], ()) == [HEADER_ROW]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dtype": None}, r"dtype: is missing"),
        ({"dtype": None, "shape_i": "nan"}, "dtype, shape_i: are missing"),
        ({"dtype": 16}, "dtype: must be text, not 16"),
        ({"dtype": b"int16"}, "dtype: must be text, not b'int16'"),
        ({"cpus": "two"}, "cpus: must be a number, not 'two'"),
        ({"cpus": True}, "cpus: must be a number, not True"),
        ({"cpus": np.bool_(True)}, "cpus: must be a number, not np.True_"),
        ({"cpus": b"2"}, "cpus: must be a number, not b'2'"),
        ({"cpus": [1]}, r"cpus: must be a number, not \[1\]"),
        ({"cpus": 10**400}, "cpus: is too large a number"),
        ({"cpus": DEEP}, r"cpus: must be a number, not \[\[\[.{,60}\]\]\]$"),
        ({"cpus": "x" * 10_000}, r"cpus: must be a number, not 'x{20,30}\.\.\.x{20,30}'$"),
        ({"volume": "not base64"}, "volume: is not base64"),
        ({"volume": "é"}, "volume: is not base64"),
        ({"volume": 7}, "volume: must be bytes, or text in base64, not 7"),
    ],
)
def test_other_values_are_refused_by_row_and_column(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RowError, match=f"^row 1: {problem}"):
        typed_rows([HEADER_ROW, {**HEADER_ROW, **change}], ())
