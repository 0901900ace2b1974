"""Questions to the registered model: built from an image file, asked in process or over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from voxcast.errors import ModelError
from voxcast.images.headers import read_header
from voxcast.images.volumes import coarse_to_bytes, load_coarse
from voxcast.serving.signature import VOLUME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from voxcast.records import Configuration

TIMEOUT_S = 60


def questions(
    image: Path,
    app: str | None,
    configurations: Sequence[Configuration],
    *,
    coarse_points: int,
    header_only: bool = False,
) -> list[dict[str, Any]]:
    """Return one row of a request per configuration for an image.

    Raises
    ------
    ImageError
        If the image cannot be used.
    """
    header = read_header(image)
    row: dict[str, Any] = dict(header.columns())
    if app is not None:  # else the model's first
        row["app"] = app
    del row["bytes_per_voxel"]  # follows from dtype
    numbers = [k for k, v in row.items() if isinstance(v, int | float)]
    row |= {name: float(row[name]) for name in numbers}
    if not header_only:
        row[VOLUME] = coarse_to_bytes(load_coarse(image, coarse_points))
    return [
        {**row, "device": c.device, "cpus": float(c.cpus), "gpus": float(c.gpus)}
        for c in configurations
    ]


def ask(
    url: str, rows: Sequence[dict[str, Any]], quantile: float, *, explained: bool = False
) -> list[dict[str, Any]]:
    """Send rows to a server started by ``mlflow models serve`` and return its answers.

    Raises
    ------
    ModelError
        If the server cannot be reached or refuses the request.
    """
    if not url.startswith(("http://", "https://")):
        raise ModelError("not an http address", url)
    body = json.dumps(
        {
            "dataframe_records": [
                {k: base64.b64encode(v).decode() if k == VOLUME else v for k, v in row.items()}
                for row in rows
            ],
            "params": {"quantile": quantile, "explain": explained},
        }
    )
    request = urllib.request.Request(  # noqa: S310  # the scheme is checked above
        url.rstrip("/").removesuffix("/invocations") + "/invocations",
        data=body.encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310
            answers: list[dict[str, Any]] = json.load(reply)["predictions"]
            return answers
    except urllib.error.HTTPError as error:
        raise ModelError(f"the server refused: {error.read().decode()[:500]}", url) from None
    except (urllib.error.URLError, TimeoutError, http.client.HTTPException, ValueError) as error:
        raise ModelError(f"no answer: {error}", url, "is the server running?") from None
