"""The signature of the served model: header columns as everywhere else, doubles and strings."""

import re

from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.header import HEADER_COLUMNS
from voxcast.records import TARGETS
from voxcast.serving import signature as columns
from voxcast.serving.signature import (
    INPUT_TYPES,
    OPTIONAL_HEADER_COLUMNS,
    OUTPUT_TYPES,
    QUANTILES,
    VOLUME,
    example,
    signature,
)


def test_inputs_are_the_header_columns_of_the_catalogue() -> None:
    inputs = signature().inputs
    header = [name for name in inputs.input_names() if name in HEADER_COLUMNS]
    assert header == [name for name in HEADER_COLUMNS if name != "bytes_per_voxel"]
    required = set(inputs.required_input_names())
    assert required == set(header) - OPTIONAL_HEADER_COLUMNS
    types = {column.name: column.type.name for column in inputs}
    assert {types[name] for name in header} == {"double", "string"}
    assert types["dtype"] == types["axcodes"] == "string"
    assert types[VOLUME] == "binary"


def test_the_example_has_all_required_columns() -> None:
    required = set(signature().inputs.required_input_names())
    assert set(example("segment").columns) == required | {"app"}


def test_outputs_have_three_quantiles_per_target() -> None:
    names = signature().outputs.input_names()
    for target in TARGETS:
        assert {f"{target}_{name}" for name in ("lower", "median", "upper")} <= set(names)
    assert {"input_level", "calibrated", "out_of_range", "out_of_range_reason"} <= set(names)


def test_parameters_have_defaults() -> None:
    defaults = {param.name: param.default for param in signature().params}
    assert defaults == {"quantile": 0.95, "explain": False}


def test_every_column_is_explained() -> None:
    text = str(columns.__doc__)
    request, answer = text.split("Request\n-------\n")[1].split("Answer\n------\n")
    names = [set(re.findall(r"\w+", " ".join(re.findall(r"^\w.*$", part, re.M))))
             for part in (request, answer)]  # fmt: skip
    assert set(INPUT_TYPES) - set(CHARACTERISTICS) <= names[0]
    with_quantiles = {f"{target}_{name}" for target in TARGETS for name in QUANTILES}
    assert set(OUTPUT_TYPES) - with_quantiles <= names[1]
    assert set(TARGETS) <= names[1]


def test_an_answer_has_all_columns_of_the_signature() -> None:
    """A Spark UDF makes its type from the outputs, and wants each of them."""
    outputs = signature().outputs
    assert outputs.input_names() == outputs.required_input_names() == list(OUTPUT_TYPES)
