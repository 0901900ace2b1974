"""Rows of a request are checked value by value, and an error names the column."""

from typing import Any

import pytest

from champions import HEADER_ROW
from voxcast.errors import ModelError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.records import Configuration
from voxcast.serving.rows import (
    characteristics_of,
    check_foreground,
    configuration_of,
    header_of,
    missing_of_lab,
    parameters_of,
)

DEFAULTS = {"iterations": 30, "mask": True, "kernel": "cubic"}


def test_a_header_is_read_from_its_columns() -> None:
    header = header_of({**HEADER_ROW, "axcodes": "LPS", "obliqueness_deg": 12.5})
    assert header.shape == (60, 64, 50)
    assert header.spacing_mm == (2.0, 2.0, 2.0)
    assert (header.axcodes, header.obliqueness_deg) == ("LPS", 12.5)
    assert (header.dtype, header.bytes_per_voxel) == ("int16", 2)
    assert header.columns().items() >= HEADER_ROW.items()


def test_optional_columns_of_a_header_have_defaults() -> None:
    header = header_of(HEADER_ROW)
    assert (header.axcodes, header.obliqueness_deg) == ("RAS", 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape_i": -3.0}, "shape_i: must be between 1 and 32767, not -3"),
        ({"shape_i": 20000.5}, "shape_i: must be a whole number"),
        ({"shape_i": 2.0000001}, "shape_i: must be a whole number, not 2.0000001"),
        ({"shape_i": 10**400}, "shape_i: is too large a number"),
        ({"file_size_bytes": 1e15 + 1}, r"and 1e\+15, not 1000000000000001$"),
        ({"shape_j": "many"}, "shape_j: must be a number, not 'many'"),
        ({"shape_k": None}, "shape_k: is missing"),
        ({"spacing_j_mm": 1e-200}, "spacing_j_mm: must be between 0.001 and 1000"),
        ({"spacing_k_mm": float("inf")}, "spacing_k_mm: must be between"),
        ({"file_size_bytes": 0.0}, "file_size_bytes: must be between"),
        ({"obliqueness_deg": 91.0}, "obliqueness_deg: must be between 0 and 90"),
        ({"dtype": "elephant"}, "dtype: unknown type 'elephant'"),
        ({"dtype": "f4,,"}, "dtype: unknown type"),
        ({"dtype": "O"}, "dtype: unknown type"),
        ({"dtype": None}, "dtype: unknown type None"),
        ({"axcodes": "XYZ"}, "axcodes: must name three axes, not 'XYZ'"),
        ({"axcodes": "RL"}, "axcodes: must name three axes"),
    ],
)
def test_an_invalid_header_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        header_of({**HEADER_ROW, **change})


def test_a_configuration_is_completed_by_the_default() -> None:
    default = Configuration("cpu", 4)
    assert configuration_of({}, default) == default
    assert configuration_of({"cpus": 2.0, "gpus": 1.0, "device": "gpu"}, default) == Configuration(
        "gpu", 2, 1
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"cpus": 0.5}, "cpus: must be between 1 and 65536"),
        ({"cpus": 1.5}, "cpus: must be a whole number"),
        ({"cpus": float("inf")}, "cpus: must be between"),
        ({"gpus": -1.0}, "gpus: must be between 0"),
    ],
)
def test_an_invalid_configuration_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        configuration_of(row, Configuration("cpu", 1))


def test_parameters_replace_the_defaults() -> None:
    assert parameters_of({}, DEFAULTS) == DEFAULTS
    changed = parameters_of({"parameters_json": '{"iterations": 2.5}'}, DEFAULTS)
    assert changed == {**DEFAULTS, "iterations": 2.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "parameters_json: not JSON"),
        ("[1]", "parameters_json: must be a JSON object"),
        (f'{{"iterations": {"9" * 5000}}}', "parameters_json: not JSON: Exceeds the limit"),
        (f'{{"iterations": {"9" * 400}}}', "iterations: must be finite, and below 1e100"),
        ('{"iterations": -Infinity}', "iterations: must be finite, and below 1e100"),
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
        parameters_of({"parameters_json": text}, DEFAULTS)


def test_characteristics_are_all_there_or_none() -> None:
    names = tuple(CHARACTERISTICS)
    assert characteristics_of(HEADER_ROW, names) is None
    values = dict.fromkeys(CHARACTERISTICS, 0.5)
    assert characteristics_of({**HEADER_ROW, **values}, names) == values
    without_asymmetry = {k: v for k, v in values.items() if k != "asymmetry"}
    with pytest.raises(ModelError, match=r"^asymmetry: is missing"):
        characteristics_of(without_asymmetry, names)
    with pytest.raises(ModelError, match="noise_ratio: must be between 0"):
        characteristics_of({**values, "noise_ratio": -0.1}, names)
    assert characteristics_of(without_asymmetry, ("noise_ratio",)) == {"noise_ratio": 0.5}
    assert characteristics_of(values, ()) == {}
    of_lab = ("noise_ratio", "tilt")
    assert characteristics_of({**values, "tilt": -2.0}, of_lab) == {"noise_ratio": 0.5, "tilt": -2}
    assert characteristics_of(values, of_lab) is None  # this client cannot compute it
    assert missing_of_lab(values, of_lab) == ("tilt",)
    assert missing_of_lab(HEADER_ROW, of_lab) == ()
    assert characteristics_of(HEADER_ROW, ()) is None


def test_a_foreground_is_no_larger_than_the_image() -> None:
    header = header_of(HEADER_ROW)
    voxels = 60 * 64 * 50
    check_foreground({"foreground_voxels": float(voxels)}, header)
    check_foreground({"noise_ratio": 0.5}, header)
    check_foreground(None, header)
    with pytest.raises(ModelError, match="192001, and the image has 192000 voxels"):
        check_foreground({"foreground_voxels": voxels + 1.0}, header)
