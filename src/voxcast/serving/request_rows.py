"""One row of a request, checked: what it says of the image, the application and the allocation.

Rows come from anywhere, so every value is checked here, and what is wrong is named.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from voxcast.errors import ModelError
from voxcast.images.headers import ImageHeader
from voxcast.records import Configuration

# NIfTI keeps a size in 16 bits, and no scanner's voxel is outside these.
MAX_POINTS = 2**15 - 1
SPACING_MM = (1e-3, 1e3)
MAX_CPUS = 65_536
_AXES = ({"R", "L"}, {"A", "P"}, {"S", "I"})


def header(row: Mapping[str, Any]) -> ImageHeader:
    """Return the header that a row describes.

    Raises
    ------
    ModelError
        Naming the column that is missing or makes no sense.
    """
    shape = [_whole(row, f"shape_{axis}", 1, MAX_POINTS) for axis in "ijk"]
    spacing_mm = tuple(_number(row, f"spacing_{axis}_mm", *SPACING_MM) for axis in "ijk")
    dtype = _dtype(row)
    return ImageHeader(
        shape=(shape[0], shape[1], shape[2]),
        spacing_mm=spacing_mm,
        axcodes=_axcodes(row),
        obliqueness_deg=_number(row, "obliqueness_deg", 0.0, 90.0, 0.0),
        dtype=dtype.name,
        bytes_per_voxel=dtype.itemsize,
        file_size_bytes=_whole(row, "file_size_bytes", 1, 10**15),
    )


def configuration(row: Mapping[str, Any], default: Configuration) -> Configuration:
    """Return the allocation that a row asks about; what it leaves out is as in ``default``."""
    return Configuration(
        device=str(row.get("device", default.device)),
        cpus=_whole(row, "cpus", 1, MAX_CPUS, default.cpus),
        gpus=_whole(row, "gpus", 0, MAX_CPUS, default.gpus),
    )


def parameters(row: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the application's parameters, those of the row over the defaults."""
    try:
        given = json.loads(str(row.get("parameters_json", "{}")))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelError(f"not JSON: {error}", "parameters_json") from None
    if not isinstance(given, dict):
        raise ModelError("must be a JSON object", "parameters_json")
    for name, value in given.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise ModelError(f"unknown parameter, known are {known}", f"parameters_json: {name}")
        if not isinstance(value, type(defaults[name])) and not (
            isinstance(value, int | float) and isinstance(defaults[name], int | float)
        ):
            kind = type(defaults[name]).__name__
            raise ModelError(f"must be {kind}, not {value!r}", f"parameters_json: {name}")
    return {**defaults, **given}


def _number(
    row: Mapping[str, Any], name: str, low: float, high: float, default: float | None = None
) -> float:
    value = row.get(name, default)
    if value is None:
        raise ModelError("is missing", name)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ModelError(f"must be a number, not {value!r}", name) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise ModelError(f"must lie between {low:g} and {high:g}, not {number:g}", name)
    return number


def _whole(
    row: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None
) -> int:
    number = _number(row, name, low, high, default)
    if number != int(number):
        raise ModelError(f"must be a whole number, not {number:g}", name)
    return int(number)


def _dtype(row: Mapping[str, Any]) -> Any:
    import numpy as np

    name = str(row.get("dtype", ""))
    known = [np.dtype(kind) for kind in "bBhHiIlLfd"]
    for dtype in known:
        if name == dtype.name:
            return dtype
    raise ModelError(f"unknown type {name!r}", "dtype", "e.g. uint8, int16 or float32")


def _axcodes(row: Mapping[str, Any]) -> str:
    codes = str(row.get("axcodes", "RAS"))
    if len(codes) != 3 or any(not set(codes) & axis for axis in _AXES):
        raise ModelError(f"must name three axes, not {codes!r}", "axcodes", "e.g. RAS")
    return codes
