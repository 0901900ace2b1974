"""Rows of questions to a model: their columns, types and limits, and why one is refused.

Rows come from JSON, files, MLflow and Python. Each becomes a `Row` once, where it is predicted, so
that it is refused in the same words whichever way it came.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from voxcast.errors import ModelError
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import ImageHeader
from voxcast.records import Configuration
from voxcast.refusals import brief, plain_number, refusal_of
from voxcast.serving.signature import EXAMPLE, OUTPUT_TYPES, REQUEST_HEADER_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

# NIfTI stores a size in 16 bits; no scanner has voxels outside these limits.
MAX_POINTS = 2**15 - 1
MAX_CPUS = 65_536
MAX_CHARACTERISTIC = 1e15
MAX_KERNEL_S = 10.0  # of work that takes milliseconds
MAX_PARAMETER = 1e100  # far from where its square or a distance overflows
DTYPES = {dtype.name: dtype for dtype in map(np.dtype, "bBhHiIlLfd")}
_NPY = b"\x93NUMPY"
_AXES = ({"R", "L"}, {"A", "P"}, {"S", "I"})
_COLUMN_TYPES = {"string": "object", "double": "float64", "long": "int64", "boolean": "bool"}
_BASE64 = {"type": "string", "contentEncoding": "base64", "description": "for a network"}


def _no_flag(value: Any) -> Any:
    """Refuse true, which Python takes for 1, and bytes."""
    if isinstance(value, bool | np.bool_ | bytes):
        raise ValueError(f"must be a number, not {brief(value)}")
    return value


def _whole_number(value: float) -> float:
    if value != int(value):
        raise ValueError(f"must be a whole number, not {value!r}")
    return value


def _axcodes(value: str) -> str:
    if len(value) != 3 or any(not set(value) & axis for axis in _AXES):
        raise ValueError(f"must name three axes, not {brief(value)}; e.g. RAS")
    return value


def _volume(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            value = base64.b64decode(value, validate=True)
        except ValueError:  # also with letters beyond ASCII
            raise ValueError("is not base64") from None
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ValueError(f"must be bytes, or text in base64, not {brief(value)}")
    data = bytes(value)
    if not data.startswith(_NPY):
        raise ValueError("not a .npy array of one small volume")
    return data


# Numbers are doubles throughout, as in the signature.
Number = Annotated[float, BeforeValidator(_no_flag), Field(allow_inf_nan=False)]
WholeNumber = Annotated[
    Number, AfterValidator(_whole_number), Field(json_schema_extra={"type": "integer"})
]
Points = Annotated[WholeNumber, Field(ge=1, le=MAX_POINTS)]
Spacing = Annotated[Number, Field(ge=1e-3, le=1e3)]
Text = Annotated[str, Field(min_length=1, max_length=500)]


Size = Annotated[Number, Field(ge=0, le=MAX_CHARACTERISTIC)]
if TYPE_CHECKING:
    Characteristics = BaseModel
else:
    Characteristics = create_model(
        "Characteristics",
        **{
            name: (Size | None, Field(None, description=entry.meaning))
            for name, entry in CHARACTERISTICS.items()
        },
    )


class Row(Characteristics):
    """A row: the header of an image, an allocation, and what was computed from the voxels.

    Columns that no model has are ignored: a client may know more than it.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [dict(EXAMPLE)]})

    shape_i: Points
    shape_j: Points
    shape_k: Points
    spacing_i_mm: Spacing
    spacing_j_mm: Spacing
    spacing_k_mm: Spacing
    file_size_bytes: Annotated[WholeNumber, Field(ge=1, le=10**15)]
    dtype: Literal[tuple(DTYPES)]  # type: ignore[valid-type]  # names of numpy's types
    axcodes: Annotated[str, AfterValidator(_axcodes)] = "RAS"
    obliqueness_deg: Annotated[Number, Field(ge=0, le=90)] = 0.0
    app: str | None = None
    device: str | None = None
    cpus: Annotated[WholeNumber, Field(ge=1, le=MAX_CPUS)] | None = None
    gpus: Annotated[WholeNumber, Field(ge=0, le=MAX_CPUS)] | None = None
    parameters_json: str = "{}"
    host: Text | None = None
    host_class: str | None = None
    kernel_s: Annotated[Number, Field(gt=0, le=MAX_KERNEL_S)] | None = None
    volume: Annotated[Any, BeforeValidator(_volume), WithJsonSchema(_BASE64)] = None

    @model_validator(mode="before")
    @classmethod
    def _stated(cls, cells: Any) -> Any:
        """Leave out missing cells, which are None or NaN."""
        if not isinstance(cells, Mapping):
            return cells
        return {
            name: cell
            for name, cell in cells.items()
            if cell is not None and not (isinstance(cell, float) and math.isnan(cell))
        }

    @classmethod
    def of(cls, cells: Mapping[str, Any]) -> Row:
        """Return a row.

        Raises
        ------
        ModelError
            If a column is missing, or a cell cannot be used; the message names the column.
        """
        try:
            return cls.model_validate(cells)
        except ValidationError as error:
            where, reason = refusal_of(error.errors(include_url=False))
            raise ModelError(reason, where) from None

    @property
    def header(self) -> ImageHeader:
        """The header that the row describes."""
        dtype = DTYPES[self.dtype]
        return ImageHeader(
            (int(self.shape_i), int(self.shape_j), int(self.shape_k)),
            (self.spacing_i_mm, self.spacing_j_mm, self.spacing_k_mm),
            self.axcodes, self.obliqueness_deg, dtype.name, dtype.itemsize,
            int(self.file_size_bytes),
        )  # fmt: skip

    def configuration(self, default: Configuration) -> Configuration:
        """Return the allocation; missing columns are taken from ``default``."""
        return Configuration(
            default.device if self.device is None else self.device,
            default.cpus if self.cpus is None else int(self.cpus),
            default.gpus if self.gpus is None else int(self.gpus),
        )

    def cells(self) -> dict[str, Any]:
        """Return the cells that were stated, with the types of the signature."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def characteristics(self, declared: Sequence[str]) -> dict[str, float] | None:
        """Return the declared characteristics of the image.

        None for a row that has none at all.

        Raises
        ------
        ModelError
            If others are missing.
        """
        cells = self.model_fields_set
        if cells.isdisjoint(CHARACTERISTICS):
            return None
        if missing := [name for name in declared if name not in cells]:
            raise ModelError("is missing", missing[0])
        values = {name: float(getattr(self, name)) for name in declared}
        voxels = math.prod(self.header.shape)
        if values.get("foreground_voxels", 0.0) > voxels:
            stated = plain_number(values["foreground_voxels"])
            problem = f"is {stated}, and the image has {voxels} voxels"
            raise ModelError(problem, "foreground_voxels")
        return values

    def parameters(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the application's parameters: the defaults, replaced by the row's.

        Raises
        ------
        ModelError
            If the application has no such parameter, or its value is of another type.
        """
        try:
            parameters = json.loads(self.parameters_json)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            raise ModelError(f"not JSON: {error}", "parameters_json") from None
        if not isinstance(parameters, dict):
            raise ModelError("must be a JSON object", "parameters_json")
        check_parameters(parameters, defaults, "parameters_json")
        return {**defaults, **parameters}


def header_row(header: ImageHeader) -> dict[str, Any]:
    """Return the header's columns of a request; numbers are floats, as in the signature."""
    columns = header.columns()
    return {
        name: float(columns[name]) if isinstance(columns[name], int) else columns[name]
        for name in REQUEST_HEADER_COLUMNS
    }


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


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, without missing values."""
    names = table.columns.tolist()
    # Several times faster than to_dict("records"), which matters for requests of one row.
    columns = (table[name].tolist() for name in names)
    return [plain_row(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def plain_row(cells: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a row of plain Python values, without missing ones."""
    import pandas as pd

    row = {}
    for name, cell in cells:
        value = cell.item() if isinstance(cell, np.generic) else cell
        is_nan = isinstance(value, float) and math.isnan(value)
        if value is not None and not is_nan and value is not pd.NA and value is not pd.NaT:
            row[name] = value
    return row


def answer_table(answers: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return answers as a table, which has all columns and their types if there are none, too."""
    import pandas as pd

    table = pd.DataFrame(answers, columns=list(OUTPUT_TYPES))
    return table.astype({name: _COLUMN_TYPES[kind] for name, kind in OUTPUT_TYPES.items()})
