"""What the served model takes and gives, written by hand: one row in, quantiles out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.records import TARGETS

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature

# Numbers are doubles throughout: an integer column cannot hold a missing value.
REQUIRED_NUMBERS = (
    "shape_i", "shape_j", "shape_k", "spacing_i_mm", "spacing_j_mm", "spacing_k_mm",
    "file_size_bytes",
)  # fmt: skip
OPTIONAL_NUMBERS = ("obliqueness_deg", "cpus", "gpus")
REQUIRED_TEXTS = ("dtype",)
OPTIONAL_TEXTS = ("axcodes", "app", "device", "parameters_json", "host_class")
VOLUME = "volume"
QUANTILES = ("lower", "median", "upper")


def example() -> pd.DataFrame:
    """Return a request that describes a common head: 1 mm, header only."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "shape_i": 176.0, "shape_j": 256.0, "shape_k": 256.0,
                "spacing_i_mm": 1.0, "spacing_j_mm": 1.0, "spacing_k_mm": 1.0,
                "file_size_bytes": 9.0e6, "dtype": "int16",
            }
        ]
    )  # fmt: skip


def signature() -> ModelSignature:
    """Return the signature of every champion, whatever family is inside."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    inputs: list[ColSpec | TensorSpec] = [
        *(ColSpec("double", name) for name in REQUIRED_NUMBERS),
        *(ColSpec("double", name, required=False) for name in OPTIONAL_NUMBERS),
        *(ColSpec("string", name) for name in REQUIRED_TEXTS),
        *(ColSpec("string", name, required=False) for name in OPTIONAL_TEXTS),
        ColSpec("binary", VOLUME, required=False),
    ]
    outputs: list[ColSpec | TensorSpec] = [
        ColSpec("string", "app"),
        ColSpec("string", "device"),
        ColSpec("double", "cpus"),
        *(
            ColSpec("double", f"{target}_{quantile}")
            for target in TARGETS
            for quantile in QUANTILES
        ),
        ColSpec("string", "input_level"),
        ColSpec("string", "family"),
        ColSpec("boolean", "calibrated"),
        ColSpec("string", "out_of_range"),
        ColSpec("string", "because", required=False),
    ]
    params = ParamSchema(
        [ParamSpec("quantile", "double", 0.95), ParamSpec("explain", "boolean", False)]
    )
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs), params=params)
