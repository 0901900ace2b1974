"""What the served model takes and gives, written by hand: one row in, quantiles out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.records import TARGETS

if TYPE_CHECKING:
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
        ColSpec("string", "level"),
        ColSpec("string", "family"),
        ColSpec("boolean", "calibrated"),
    ]
    params = ParamSchema([ParamSpec("quantile", "double", 0.95)])
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs), params=params)
