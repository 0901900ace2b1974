"""Input and output columns of the served model, and its MLflow signature.

The signature is the same for every family and every application. A request has a row for each
image and allocation.

Request
-------
shape_i, shape_j, shape_k
    Voxels along each axis of the file; required.
spacing_i_mm, spacing_j_mm, spacing_k_mm
    Distance of voxels in mm; required.
file_size_bytes, dtype
    Size of the file as it is stored, and the type of its voxels, such as ``int16``; required.
axcodes, obliqueness_deg
    Orientation, such as ``RAS``, and the angle to the axes of the scanner in degrees; by default
    ``RAS`` and 0.
app
    Name of the application; needed by a model of several.
device, cpus, gpus
    The allocation: ``cpu``, or another device that the model has, and numbers of cores and GPUs;
    by default the first configuration of the application.
parameters_json
    JSON object with parameters of the application; missing ones have their defaults.
host
    The machine: its id, or a host class or node type on record; by default the one that answers.
host_class
    Class of the machine (models of CPU, cores, GPUs), for one that is not on record.
kernel_s
    What the kernels of the metronome take on the machine now, see `voxcast.kernel_s`.
foreground_voxels, and the other characteristics
    Computed from the voxels, see `voxcast.images.characteristics`; all that the application
    declares, or none.
volume
    The small volume for a network, ``.npy`` of `voxcast.images.network_volume`; JSON has it in
    base64.

Answer
------
app, device, cpus, gpus
    The application and allocation of the answer.
cpu_s, runtime_s, peak_rss_bytes, each with _lower, _median, _upper
    Quantiles of CPU time and wall time in seconds and of peak memory in bytes. ``_upper`` is at
    the parameter ``quantile``, ``_lower`` at one minus it.
input_level
    ``volume`` if the characteristics were used, ``header`` if only the header was.
family
    Family of the model that answered.
network_points
    Cells along an axis of the volume that the network wants; 0 without one.
calibrated, calibrated_at
    Whether the upper bounds hold as stated, and when the forecaster of this application was
    calibrated and promoted (ISO 8601).
missing_subjects, measured_subjects
    Subjects that the bounds lack to be calibrated, and the number they are based on.
out_of_range, out_of_range_reason
    Features, or pairs of them (``A×B``), in which the request lies outside everything measured,
    separated by spaces; and the same in words. Empty for a request in range.
host, host_known, host_runs
    The machine that the answer is for, whether its speed is known well enough for calibrated
    bounds, and from how many runs.
speed_lower, speed_median, speed_upper, speed_basis
    Speed of the machine as a multiple of the reference machine's, and what tells it: runs of its
    ``sitting``, a ``reading`` of the kernels, runs on the ``machine``, or on others of its
    ``kind``; empty for a machine that is not known.
model_version
    Number of the version in the registry; empty if the model was read from a folder that does not
    tell.
because
    JSON list of the features that changed the runtime most, see `voxcast.models.explanation`;
    empty without the parameter ``explain``.

All columns of an answer are there in every answer, with the same types, so that the parts of a
table can be put together again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import create_model

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import HEADER_TYPES
from voxcast.records import TARGETS

if TYPE_CHECKING:
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
    "kernel_s": "double",
}
# The input of the network, of an image whose characteristics are there too.
VOLUME = "volume"
# Types of all columns of a request, and the columns that every row has.
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
# Types of all columns of an answer, in their order.
OUTPUT_TYPES = {
    "app": "string",
    "device": "string",
    "cpus": "double",
    "gpus": "double",
    **{f"{target}_{quantile}": "double" for target in TARGETS for quantile in QUANTILES},
    "input_level": "string",
    "family": "string",
    "network_points": "double",
    "calibrated": "boolean",
    "calibrated_at": "string",
    "missing_subjects": "long",
    "measured_subjects": "long",
    "out_of_range": "string",
    "out_of_range_reason": "string",
    "host": "string",
    "host_known": "boolean",
    "host_runs": "long",
    **{f"speed_{quantile}": "double" for quantile in QUANTILES},
    "speed_basis": "string",
    "model_version": "string",
    "because": "string",
}
QUANTILE = 0.95  # of the upper bounds, if a request has no other
# An answer as JSON has it, where infinite values and NaN are null.
_JSON_TYPES: dict[str, Any] = {
    "string": str, "double": float | None, "long": int, "boolean": bool,
}  # fmt: skip
_FIELDS: dict[str, Any] = {n: (_JSON_TYPES[kind], ...) for n, kind in OUTPUT_TYPES.items()}
Answer: Any = create_model("Answer", **_FIELDS)


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


def signature() -> ModelSignature:
    """Return the signature, which is the same for every family."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec

    inputs: list[ColSpec | TensorSpec] = [
        ColSpec(kind, name, required=name in REQUIRED_COLUMNS)
        for name, kind in INPUT_TYPES.items()
    ]
    outputs: list[ColSpec | TensorSpec] = [
        ColSpec(kind, name) for name, kind in OUTPUT_TYPES.items()
    ]
    params = ParamSchema(
        [ParamSpec("quantile", "double", QUANTILE), ParamSpec("explain", "boolean", False)]
    )
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs), params=params)
