"""One row of a request, checked: image header, application parameters and allocation.

Rows are untrusted: every value is checked, and an error names the column.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import SHAPE_COLUMNS, SPACING_COLUMNS, ImageHeader
from voxcast.records import Configuration
from voxcast.serving.rows.typed_rows import binary, brief, double
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# NIfTI stores a size in 16 bits; no scanner has voxels outside these limits.
MAX_POINTS = 2**15 - 1
SPACING_MM = (1e-3, 1e3)
MAX_CPUS = 65_536
MAX_FILE_BYTES = 10**15
MAX_CHARACTERISTIC = 1e15
MAX_HOST = 500
MAX_PARAMETER = 1e100  # far from where its square or a distance overflows
DTYPES = {dtype.name: dtype for dtype in map(np.dtype, "bBhHiIlLfd")}
_NPY = b"\x93NUMPY"
_AXES = ({"R", "L"}, {"A", "P"}, {"S", "I"})


def header_of(row: Mapping[str, Any]) -> ImageHeader:
    """Return the header that a row describes.

    Raises
    ------
    ModelError
        If a column is missing or invalid.
    """
    i, j, k = (_integer(row, name, 1, MAX_POINTS) for name in SHAPE_COLUMNS)
    dtype = DTYPES.get(str(row.get("dtype")))
    if dtype is None:
        raise ModelError(f"unknown type {row.get('dtype')!r}", "dtype", "e.g. int16 or float32")
    axcodes = str(row.get("axcodes", "RAS"))
    if len(axcodes) != 3 or any(not set(axcodes) & axis for axis in _AXES):
        raise ModelError(f"must name three axes, not {axcodes!r}", "axcodes", "e.g. RAS")
    return ImageHeader(
        shape=(i, j, k),
        spacing_mm=tuple(_number(row, name, *SPACING_MM) for name in SPACING_COLUMNS),
        axcodes=axcodes,
        obliqueness_deg=_number(row, "obliqueness_deg", 0.0, 90.0, 0.0),
        dtype=dtype.name,
        bytes_per_voxel=dtype.itemsize,
        file_size_bytes=_integer(row, "file_size_bytes", 1, MAX_FILE_BYTES),
    )


def characteristics_of(row: Mapping[str, Any], declared: Sequence[str]) -> dict[str, float] | None:
    """Return the declared characteristics of the image.

    None for a row that has none at all, or lacks one of a laboratory, see `missing_of_lab`.

    Raises
    ------
    ModelError
        If others are missing, or one is invalid.
    """
    if not _has_any(row, declared) or missing_of_lab(row, declared):
        return None
    lowest = {name: 0.0 if name in CHARACTERISTICS else -MAX_CHARACTERISTIC for name in declared}
    return {name: _number(row, name, lowest[name], MAX_CHARACTERISTIC) for name in declared}


def check_foreground(content: Mapping[str, float] | None, header: ImageHeader) -> None:
    """Check that the foreground has no more voxels than the image.

    Raises
    ------
    ModelError
        If it has.
    """
    name, voxels = "foreground_voxels", math.prod(header.shape)
    foreground = (content or {}).get(name, 0.0)
    if foreground > voxels:
        raise ModelError(f"is {_exact(foreground)}, and the image has {voxels} voxels", name)


def missing_of_lab(row: Mapping[str, Any], declared: Sequence[str]) -> tuple[str, ...]:
    """Return the declared characteristics of a laboratory that a row with others lacks.

    A client without the functions of that laboratory cannot compute them.
    """
    if not _has_any(row, declared):
        return ()
    return tuple(name for name in declared if name not in CHARACTERISTICS and name not in row)


def _has_any(row: Mapping[str, Any], declared: Sequence[str]) -> bool:
    return any(name in row for name in (*CHARACTERISTICS, *declared))


def configuration_of(row: Mapping[str, Any], default: Configuration) -> Configuration:
    """Return the allocation of a row; missing columns are taken from ``default``."""
    return Configuration(
        device=str(row.get("device", default.device)),
        cpus=_integer(row, "cpus", 1, MAX_CPUS, default.cpus),
        gpus=_integer(row, "gpus", 0, MAX_CPUS, default.gpus),
    )


def host_of(row: Mapping[str, Any]) -> str | None:
    """Return the machine that a row asks about: an id, a host class or a node type.

    Raises
    ------
    ModelError
        If it cannot be a name.
    """
    if "host" not in row:
        return None
    name = str(row["host"])
    if not 0 < len(name) <= MAX_HOST:
        raise ModelError(f"must be a name of at most {MAX_HOST} letters", "host")
    return name


def volume_of(row: Mapping[str, Any]) -> bytes | None:
    """Return the small volume of a row, also of one whose model has no network.

    Raises
    ------
    ModelError
        If it is neither ``.npy`` nor that in base64.
    """
    value = row.get(VOLUME)
    if value is None:
        return None
    data = binary(value, VOLUME)
    if not data.startswith(_NPY):
        raise ModelError("not a .npy array of one small volume", VOLUME)
    return data


def parameters_of(row: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the application's parameters: the defaults, replaced by the row's."""
    try:
        parameters = json.loads(str(row.get("parameters_json", "{}")))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise ModelError(f"not JSON: {error}", "parameters_json") from None
    if not isinstance(parameters, dict):
        raise ModelError("must be a JSON object", "parameters_json")
    check_parameters(parameters, defaults, "parameters_json")
    return {**defaults, **parameters}


def check_parameters(
    parameters: Mapping[str, Any], defaults: Mapping[str, Any], where: str
) -> None:
    """Check that an application has these parameters, and that their values are of its types.

    Raises
    ------
    ModelError
        If not; ``where`` says where they are from.
    """
    for name, value in parameters.items():
        if name not in defaults:
            names = f"choose from {', '.join(sorted(defaults))}" if defaults else "it has none"
            raise ModelError(f"unknown parameter; {names}", f"{where}: {name}")
        kind = type(defaults[name]).__name__
        if _is_number(value) != _is_number(defaults[name]) or not (
            _is_number(value) or isinstance(value, type(defaults[name]))
        ):
            raise ModelError(f"must be {kind}, not {brief(value)}", f"{where}: {name}")
        if isinstance(value, int | float) and not abs(value) <= MAX_PARAMETER:
            raise ModelError("must be finite, and below 1e100", f"{where}: {name}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(
    row: Mapping[str, Any], name: str, low: float, high: float, default: float | None = None
) -> float:
    value = row.get(name, default)
    if value is None:
        raise ModelError("is missing", name)
    number = double(value, name)
    if not (math.isfinite(number) and low <= number <= high):
        raise ModelError(f"must be between {low:g} and {high:g}, not {_exact(number)}", name)
    return number


def _integer(
    row: Mapping[str, Any], name: str, low: int, high: int, default: int | None = None
) -> int:
    number = _number(row, name, low, high, default)
    if number != int(number):
        raise ModelError(f"must be a whole number, not {_exact(number)}", name)
    return int(number)


def _exact(number: float) -> str:
    """Write a number with all its digits, so that it never looks like a limit that it exceeds."""
    return repr(number).removesuffix(".0")
