"""A model that MLflow loaded in this process, asked as MLflow's server would ask it."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from voxcast.errors import RequestError
from voxcast.serving.signature import INPUT_TYPES, VOLUME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlflow.pyfunc import PyFuncModel

_REPEATED_REQUEST = re.compile(
    r"Failed to (?:predict|enforce schema of) data .*?\bError: ", flags=re.DOTALL
)


def call(
    model: PyFuncModel,
    rows: Sequence[dict[str, Any]],
    quantile: float,
    *,
    explain: bool = False,
) -> list[dict[str, Any]]:
    """Return the predictions of a model that MLflow loaded in this process.

    Raises
    ------
    RequestError
        If the model rejects the request.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.utils.proto_json_utils import dataframe_from_parsed_json

    for number, row in enumerate(rows):  # MLflow takes true for 1
        for name in INPUT_TYPES.keys() & row.keys():
            if isinstance(row[name], bool):
                problem = f"row {number}: {name}: must be a number, not {row[name]}"
                raise refusal(problem, None)
    try:
        requests = dataframe_from_parsed_json(  # as MLflow's server does
            [encoded(row) for row in rows],
            pandas_orient="records",
            schema=model.metadata.get_input_schema(),
        )
        table: Any = model.predict(requests, {"quantile": quantile, "explain": explain})
    except MlflowException as error:
        raise refusal(error.message, None) from error
    # Several times faster than to_dict("records"), which matters for requests of one row.
    columns = (table[name].tolist() for name in table)
    return [dict(zip(table, values, strict=True)) for values in zip(*columns, strict=True)]


def encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON takes it: a small volume in base64."""
    return {
        k: base64.b64encode(v).decode() if k == VOLUME and isinstance(v, bytes) else v
        for k, v in row.items()
    }


def refusal(message: str, url: str | None) -> RequestError:
    """Return the error of a request that a model refused, without the request."""
    # MLflow repeats the request, voxels included, before the reason.
    reason = _REPEATED_REQUEST.sub("", message)
    return RequestError(f"request refused: {reason[:500]}", url)
