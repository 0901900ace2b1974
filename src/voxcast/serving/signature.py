"""Input and output columns of the served model, and its MLflow signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.headers import HEADER_TYPES
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from mlflow.models import ModelSignature

# Header columns of a request; the bytes per voxel follow from the data type.
REQUEST_HEADER_COLUMNS = tuple(name for name in HEADER_TYPES if name != "bytes_per_voxel")
OPTIONAL_HEADER_COLUMNS = frozenset({"axcodes", "obliqueness_deg"})
# Numbers are doubles throughout: an integer column cannot hold a missing value.
OPTIONAL_COLUMNS = {
    "app": "string",
    "device": "string",
    "cpus": "double",
    "gpus": "double",
    "parameters_json": "string",
    "host_class": "string",
    "host": "string",
}
# What a model needs of a laboratory and a request lacks, in the answer.
MISSING = "missing_characteristics"
# The input of the network, of an image whose characteristics are there too.
VOLUME = "volume"
# Types of all columns of a request, and those that every row has.
INPUT_TYPES = {
    **{
        name: "string" if HEADER_TYPES[name] is str else "double"
        for name in REQUEST_HEADER_COLUMNS
    },
    **OPTIONAL_COLUMNS,
    **dict.fromkeys(CHARACTERISTICS, "double"),
    VOLUME: "binary",
}
REQUIRED_COLUMNS = frozenset(REQUEST_HEADER_COLUMNS) - OPTIONAL_HEADER_COLUMNS
QUANTILES = ("lower", "median", "upper")


# A request without an application: a typical head scan of 1 mm, header only.
EXAMPLE: dict[str, float | str] = {
    "shape_i": 176.0, "shape_j": 256.0, "shape_k": 256.0,
    "spacing_i_mm": 1.0, "spacing_j_mm": 1.0, "spacing_k_mm": 1.0,
    "file_size_bytes": 9.0e6, "dtype": "int16",
}  # fmt: skip


def example(app: str) -> pd.DataFrame:
    """Return a request for an application, of one row."""
    import pandas as pd

    return pd.DataFrame([{**EXAMPLE, "app": app}])


def signature(lab: Iterable[str] = ()) -> ModelSignature:
    """Return the signature, which is the same for every family.

    Parameters
    ----------
    lab : iterable of str
        Characteristics of laboratories that the model's applications declare.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    inputs: list[ColSpec | TensorSpec] = [
        ColSpec(kind, name, required=name in REQUIRED_COLUMNS)
        for name, kind in {**INPUT_TYPES, **dict.fromkeys(lab, "double")}.items()
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
        ColSpec("double", "network_points"),
        ColSpec("boolean", "calibrated"),
        ColSpec("long", "missing_subjects"),
        ColSpec("long", "measured_subjects"),
        ColSpec("string", "out_of_range"),
        ColSpec("string", "out_of_range_reason"),
        ColSpec("string", "host"),
        ColSpec("boolean", "host_known"),
        ColSpec("long", "host_runs"),
        *(ColSpec("double", f"speed_{quantile}") for quantile in QUANTILES),
        ColSpec("string", MISSING, required=False),
        ColSpec("string", "because", required=False),
    ]
    params = ParamSchema(
        [ParamSpec("quantile", "double", 0.95), ParamSpec("explain", "boolean", False)]
    )
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs), params=params)
