"""Two ways to send a request to the registered model: in this process and over HTTP.

Both pass the signature of the model, which MLflow enforces, so the same rows are cast in the same
way and refused with the same message.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlflow.pyfunc import PyFuncModel

TIMEOUT_S = 60


def call(
    model: PyFuncModel,
    rows: Sequence[dict[str, Any]],
    quantile: float,
    *,
    explain: bool = False,
) -> list[dict[str, Any]]:
    """Return the predictions of a model that is loaded in this process.

    Raises
    ------
    ModelError
        If the model refuses the request.
    """
    import pandas as pd
    from mlflow.exceptions import MlflowException

    try:
        table: Any = model.predict(pd.DataFrame(rows), {"quantile": quantile, "explain": explain})
    except MlflowException as error:
        raise _refusal(error.message, None) from error
    predictions: list[dict[str, Any]] = table.to_dict("records")
    return predictions


def post(
    url: str, rows: Sequence[dict[str, Any]], quantile: float, *, explain: bool = False
) -> list[dict[str, Any]]:
    """Return the predictions of a server started by ``voxcast serve``.

    Raises
    ------
    ModelError
        If the server cannot be reached or the model refuses the request.
    """
    if not url.startswith(("http://", "https://")):
        raise ModelError("not an HTTP address", url)
    body = json.dumps(
        {
            "dataframe_records": [
                {k: base64.b64encode(v).decode() if k == VOLUME else v for k, v in row.items()}
                for row in rows
            ],
            "params": {"quantile": quantile, "explain": explain},
        }
    )
    request = urllib.request.Request(  # noqa: S310  # the scheme is checked above
        url.rstrip("/").removesuffix("/invocations") + "/invocations",
        data=body.encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310
            predictions: list[dict[str, Any]] = json.load(reply)["predictions"]
            return predictions
    except urllib.error.HTTPError as error:
        raise _refusal(_message(error.read().decode(errors="replace")), url) from None
    except (urllib.error.URLError, TimeoutError, http.client.HTTPException, ValueError) as error:
        raise ModelError(f"no answer: {error}", url, "is the server running?") from None


def _message(reply: str) -> str:
    try:
        return str(json.loads(reply)["message"])
    except (ValueError, TypeError, KeyError):  # not written by MLflow, but by a proxy, say
        return reply


def _refusal(message: str, url: str | None) -> ModelError:
    # MLflow repeats the request, voxels included, in front of what is wrong with it.
    reason = re.split(r"\bError: ", message)[-1]
    return ModelError(f"request refused: {reason[:500]}", url)
