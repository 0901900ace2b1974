"""Requests to the registered model, in this process or over HTTP.

Both have the types of the model's signature, so the same rows get the same predictions or the same
error message.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError, RequestError, one_line
from voxcast.serving import http_liveness
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlflow.pyfunc import PyFuncModel

TIMEOUT_S = 60  # of an answer; the first one reads a model
PING = "/ping"  # of MLflow's server of models
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

    try:
        requests = dataframe_from_parsed_json(  # as MLflow's server does
            _encoded(rows), pandas_orient="records", schema=model.metadata.get_input_schema()
        )
        table: Any = model.predict(requests, {"quantile": quantile, "explain": explain})
    except MlflowException as error:
        raise refusal(error.message, None) from error
    # Several times faster than to_dict("records"), which matters for requests of one row.
    columns = (table[name].tolist() for name in table)
    return [dict(zip(table, values, strict=True)) for values in zip(*columns, strict=True)]


def post(
    url: str, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
) -> list[dict[str, Any]]:
    """Return the predictions of a server started by ``voxcast serve``.

    Raises
    ------
    RequestError
        If the model rejects the request.
    ModelError
        If the server cannot be reached.
    """
    address = url.rstrip("/").removesuffix("/invocations")
    http_liveness.check(address, PING, "the server", "is it running? see `voxcast serve`")
    body = json.dumps(
        {
            "dataframe_records": _encoded(rows),
            "params": {"quantile": quantile, "explain": explain},
        }
    )
    request = urllib.request.Request(  # noqa: S310  # the scheme is checked above
        address + "/invocations",
        data=body.encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310
            predictions: list[dict[str, Any]] = json.load(reply)["predictions"]
            return predictions
    except urllib.error.HTTPError as error:
        raise refusal(_message(error.read().decode(errors="replace")), url) from None
    except TimeoutError:
        raise ModelError(f"no answer within {TIMEOUT_S} s", url, "see the server's log") from None
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        problem = f"no predictions: {one_line(error) or type(error).__name__}"
        raise ModelError(problem, url, "is it the server of `voxcast serve`?") from None


def _encoded(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {k: base64.b64encode(v).decode() if k == VOLUME else v for k, v in row.items()}
        for row in rows
    ]


def _message(reply: str) -> str:
    try:
        return str(json.loads(reply)["message"])
    except (ValueError, TypeError, KeyError):  # written by a proxy, for example, not by MLflow
        return reply


def refusal(message: str, url: str | None) -> RequestError:
    """Return the error of a request that a model refused, without the request."""
    # MLflow repeats the request, voxels included, before the reason.
    reason = _REPEATED_REQUEST.sub("", message)
    return RequestError(f"request refused: {reason[:500]}", url)
