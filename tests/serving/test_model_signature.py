"""The signature of the served model: header columns as everywhere else, doubles and strings."""

from voxcast.images.headers import HEADER_COLUMNS
from voxcast.records import TARGETS
from voxcast.serving.signature import OPTIONAL_HEADER_COLUMNS, VOLUME, example, signature


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
