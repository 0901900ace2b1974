"""Rows of requests as JSON has them."""

from typing import Any

import pytest

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.serving.rows.json_rows import json_row


def test_values_have_the_types_of_the_signature() -> None:
    row = {**HEADER_ROW, "cpus": "2", "shape_i": 60, "volume": "AP8=", "texture": 1, "host": None,
           "unheard": [], "noise_ratio": float("nan"), "obliqueness_deg": "nan"}  # fmt: skip
    expected = {**HEADER_ROW, "cpus": 2.0, "shape_i": 60.0, "volume": b"\x00\xff", "texture": 1.0}
    typed = json_row(row, ("texture",))
    assert typed == expected
    assert isinstance(typed["shape_i"], float)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"dtype": None}, "dtype: is missing"),
        ({"dtype": 16}, "dtype: must be a text, not 16"),
        ({"cpus": "two"}, "cpus: must be a number, not 'two'"),
        ({"cpus": True}, "cpus: must be a number, not True"),
        ({"cpus": [1]}, r"cpus: must be a number, not \[1\]"),
        ({"cpus": 10**400}, "cpus: is too large a number"),
        ({"volume": "not base64"}, "volume: is not base64"),
        ({"cpus": "x" * 10_000}, "cpus: must be a number, not 'x{59}…"),
    ],
)
def test_other_values_are_refused_by_their_column(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        json_row({**HEADER_ROW, **change}, ())
