"""JSON Schema of a request row, for the OpenAPI document; what holds is `request_rows`."""

from __future__ import annotations

from typing import Any

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import SHAPE_COLUMNS, SPACING_COLUMNS
from voxcast.serving.rows.request_rows import (
    DTYPES,
    MAX_CHARACTERISTIC,
    MAX_CPUS,
    MAX_FILE_BYTES,
    MAX_HOST,
    MAX_POINTS,
    SPACING_MM,
)
from voxcast.serving.signature import EXAMPLE, INPUT_TYPES, REQUIRED_COLUMNS

_KINDS = {"string": "string", "double": "number", "binary": "string"}
_LIMITS: dict[str, dict[str, Any]] = {
    **{key: {"type": "integer", "minimum": 1, "maximum": MAX_POINTS} for key in SHAPE_COLUMNS},
    **{key: {"minimum": SPACING_MM[0], "maximum": SPACING_MM[1]} for key in SPACING_COLUMNS},
    **{
        name: {"minimum": 0, "maximum": MAX_CHARACTERISTIC, "description": entry.meaning}
        for name, entry in CHARACTERISTICS.items()
    },
    "file_size_bytes": {"type": "integer", "minimum": 1, "maximum": MAX_FILE_BYTES},
    "dtype": {"enum": list(DTYPES)},
    "axcodes": {"pattern": "^[RL][AP][SI]$", "description": "orientation; by default RAS"},
    "obliqueness_deg": {"minimum": 0, "maximum": 90},
    "cpus": {"type": "integer", "minimum": 1, "maximum": MAX_CPUS},
    "gpus": {"type": "integer", "minimum": 0, "maximum": MAX_CPUS},
    "host": {"minLength": 1, "maxLength": MAX_HOST},
    "parameters_json": {"contentMediaType": "application/json"},
    "volume": {"contentEncoding": "base64", "description": "the small volume for a network"},
}


def row_schema() -> dict[str, Any]:
    """Return the schema: all columns of the signature; others are passed over."""
    properties = {
        name: {"type": _KINDS[kind], **_LIMITS.get(name, {})} for name, kind in INPUT_TYPES.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(REQUIRED_COLUMNS),
        "additionalProperties": {"type": ["number", "string", "null"]},
        "examples": [EXAMPLE],
    }
