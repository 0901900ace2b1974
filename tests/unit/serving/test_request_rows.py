"""Rows of requests as JSON, files and Python have them: types, limits, and refusals by column."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration
from voxcast.serving.rows import Row

DEFAULTS = {"iterations": 30, "mask": True, "kernel": "cubic"}
NPY = b"\x93NUMPY"
DEEP = json.loads("[" * 900 + "]" * 900)
for _ in range(900):
    DEEP = [DEEP]


def row(**cells: Any) -> Row:
    return Row.of({**HEADER_ROW, **cells})


def test_a_header_is_read_from_its_columns() -> None:
    header = row(axcodes="LPS", obliqueness_deg=12.5).header
    assert header.shape == (60, 64, 50)
    assert header.spacing_mm == (2.0, 2.0, 2.0)
    assert (header.axcodes, header.obliqueness_deg) == ("LPS", 12.5)
    assert (header.dtype, header.bytes_per_voxel) == ("int16", 2)
    assert header.columns().items() >= HEADER_ROW.items()
    assert (row().header.axcodes, row().header.obliqueness_deg) == ("RAS", 0.0)


def test_cells_have_the_types_of_the_signature() -> None:
    cells = {"cpus": "2", "shape_i": 60, "volume": "k05VTVBZ", "unheard": [], "noise_ratio": "0.5"}
    expected = {"cpus": 2.0, "shape_i": 60.0, "volume": NPY, "unheard": [], "noise_ratio": 0.5}
    assert row(**cells).cells() == {**HEADER_ROW, **expected}
    for missing in (None, float("nan"), np.float64("nan")):
        columns = dict.fromkeys(("cpus", "host", "volume", "noise_ratio"), missing)
        assert row(**columns).cells() == HEADER_ROW


@pytest.mark.parametrize("value", [2, 2.0, "2", " 2e0 ", Decimal(2), np.int64(2), np.float32(2)])
def test_a_number_is_written_in_any_type_of_numbers(value: Any) -> None:
    assert (row(cpus=value).cpus, type(row(cpus=value).cpus)) == (2.0, float)


@pytest.mark.parametrize("value", ["k05VTVBZ", NPY, bytearray(NPY), memoryview(NPY)])
def test_a_volume_is_bytes_or_text_in_base64(value: Any) -> None:
    assert (row(volume=value).volume, type(row(volume=value).volume)) == (NPY, bytes)


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ({"shape_i": -3.0}, "shape_i: must be at least 1, not -3"),
        ({"shape_i": 20000.5}, "shape_i: must be a whole number, not 20000.5"),
        ({"shape_i": 2.0000001}, "shape_i: must be a whole number, not 2.0000001"),
        ({"shape_i": 10**400}, "shape_i: must be a number, not 10"),
        ({"file_size_bytes": 1e15 + 1}, "at most 1000000000000000, not 1000000000000001$"),
        ({"shape_j": "many"}, "shape_j: must be a number, not 'many'"),
        ({"shape_k": None}, "shape_k: is missing"),
        ({"dtype": None, "shape_i": None}, "dtype, shape_i: are missing"),
        ({"spacing_j_mm": 1e-200}, "spacing_j_mm: must be at least 0.001, not 1e-200"),
        ({"spacing_k_mm": float("inf")}, "spacing_k_mm: must be finite"),
        ({"obliqueness_deg": 91.0}, "obliqueness_deg: must be at most 90, not 91"),
        ({"dtype": "elephant"}, "dtype: must be 'int8', .*'float64', not 'elephant'"),
        ({"dtype": "O"}, "dtype: must be"),
        ({"dtype": 16}, "dtype: must be"),
        ({"axcodes": "XYZ"}, "axcodes: must name three axes, not 'XYZ'; e.g. RAS"),
        ({"axcodes": "RL"}, "axcodes: must name three axes"),
        ({"cpus": 0.5}, "cpus: must be a whole number, not 0.5"),
        ({"cpus": True}, "cpus: must be a number, not True"),
        ({"cpus": np.bool_(True)}, "cpus: must be a number, not np.True_"),
        ({"cpus": b"2"}, "cpus: must be a number, not b'2'"),
        ({"cpus": DEEP}, r"cpus: must be a number, not \[\[\[.{,60}\]\]\]$"),
        ({"cpus": "x" * 10_000}, r"cpus: must be a number, not 'x{20,30}\.\.\.x{20,30}'$"),
        ({"gpus": -1.0}, "gpus: must be at least 0, not -1"),
        ({"host": 7}, "host: must be text, not 7"),
        ({"host": ""}, "host: is empty"),
        ({"volume": "not base64"}, "volume: is not base64"),
        ({"volume": "é"}, "volume: is not base64"),
        ({"volume": "AAAA"}, "volume: not a .npy array"),
        ({"volume": 7}, "volume: must be bytes, or text in base64, not 7"),
    ],
)
def test_other_cells_are_refused_by_column(cells: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        row(**cells)


def test_an_allocation_is_completed_by_the_default() -> None:
    default = Configuration("cpu", 4)
    assert row().configuration(default) == default
    stated = row(cpus=2.0, gpus=1.0, device="gpu").configuration(default)
    assert stated == Configuration("gpu", 2, 1)


def test_parameters_replace_the_defaults() -> None:
    assert row().parameters(DEFAULTS) == DEFAULTS
    changed = row(parameters_json='{"iterations": 2.5}').parameters(DEFAULTS)
    assert changed == {**DEFAULTS, "iterations": 2.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "parameters_json: not JSON"),
        ("[1]", "parameters_json: must be a JSON object"),
        (f'{{"iterations": {"9" * 5000}}}', "parameters_json: not JSON: Exceeds the limit"),
        (f'{{"iterations": {"9" * 400}}}', "iterations: must be finite, and below 1e100"),
        ('{"iterations": NaN}', "iterations: must be finite, and below 1e100"),
        ('{"iteration": 3}', "unknown parameter; choose from iterations, kernel, mask"),
        ('{"iterations": "many"}', "parameters_json: iterations: must be int, not 'many'"),
        ('{"kernel": 3}', "parameters_json: kernel: must be str, not 3"),
        ('{"iterations": true}', "parameters_json: iterations: must be int, not True"),
        ('{"mask": 1}', "parameters_json: mask: must be bool, not 1"),
    ],
)
def test_invalid_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        row(parameters_json=text).parameters(DEFAULTS)


def test_characteristics_are_all_there_or_none() -> None:
    names = tuple(CHARACTERISTICS)
    values = dict.fromkeys(CHARACTERISTICS, 0.5)
    assert row().characteristics(names) is None
    assert row(**values).characteristics(names) == values
    without_asymmetry = {k: v for k, v in values.items() if k != "asymmetry"}
    with pytest.raises(ModelError, match=r"^asymmetry: is missing"):
        row(**without_asymmetry).characteristics(names)
    with pytest.raises(ModelError, match="noise_ratio: must be at least 0"):
        row(noise_ratio=-0.1)
    assert row(**without_asymmetry).characteristics(("noise_ratio",)) == {"noise_ratio": 0.5}
    assert row(**values).characteristics(()) == {}
    assert row().characteristics(()) is None


def test_a_foreground_is_no_larger_than_the_image() -> None:
    names, voxels = ("foreground_voxels",), 60 * 64 * 50
    assert row(foreground_voxels=voxels).characteristics(names) == {names[0]: voxels}
    with pytest.raises(ModelError, match="192001, and the image has 192000 voxels"):
        row(foreground_voxels=voxels + 1).characteristics(names)
