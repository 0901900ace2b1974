"""MLflow's protocol of served models, for clients that have it: ``POST /invocations``.

The answers equal those from ``mlflow models serve`` on the same model; rows that it cannot read
are refused with the reason.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from voxcast.errors import ModelError
from voxcast.serving.rows.typed_rows import brief
from voxcast.web.json_answers import json_answer
from voxcast.web.problems import INVOCATIONS
from voxcast.web.routes.predictions import MAX_ROWS, predict_rows

if TYPE_CHECKING:
    from voxcast.web.json_bodies import BulkBodies

router = APIRouter()

PARAMETERS = {"quantile": 0.95, "explain": False}
RECORDS, SPLIT, PARAMS = "dataframe_records", "dataframe_split", "params"


@router.post(INVOCATIONS, response_class=Response, include_in_schema=False)
async def invocations(request: Request) -> Response:
    """Predict rows as MLflow's server does."""
    bulk: BulkBodies = request.app.state.bulk
    async with bulk.content(request, _json) as content:
        rows, parameters = _rows(content), _parameters(content)
        predictions = await predict_rows(
            request, rows, parameters["quantile"], explain=parameters["explain"]
        )
        return json_answer({"predictions": predictions})


@router.get("/ping", include_in_schema=False)
async def ping() -> Response:
    """Tell that the server answers."""
    return Response("\n")


@router.get("/version", include_in_schema=False)
async def mlflow_version() -> Response:
    """Return the release of MLflow whose protocol this is."""
    return Response(version("mlflow"))


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ModelError(f"not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"must be an object with {RECORDS} or {SPLIT}")
    return content


def _rows(content: dict[str, Any]) -> list[dict[str, Any]]:
    unknown = content.keys() - {RECORDS, SPLIT, PARAMS}
    if unknown or len(content.keys() & {RECORDS, SPLIT}) != 1:
        raise ModelError(f"needs either {RECORDS} or {SPLIT}, with {PARAMS} or without")
    rows = content.get(RECORDS)
    if SPLIT in content:
        rows = _rows_of_split(content[SPLIT])
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise ModelError("must be a list of objects, one for each row", RECORDS)
    if len(rows) > MAX_ROWS:
        raise ModelError(f"has at most {MAX_ROWS} rows; ask for fewer rows at a time", RECORDS)
    return rows


def _rows_of_split(split: Any) -> list[dict[str, Any]]:
    table: dict[str, Any] = split if isinstance(split, dict) else {}
    columns: Any = table.get("columns")
    data: Any = table.get("data")
    valid = (
        isinstance(columns, list)
        and all(isinstance(name, str) for name in columns)
        and isinstance(data, list)
        and all(isinstance(values, list) and len(values) == len(columns) for values in data)
    )
    if not valid:
        raise ModelError("needs columns, and data with as many values in each row", SPLIT)
    return [dict(zip(columns, values, strict=True)) for values in data]


def _parameters(content: dict[str, Any]) -> dict[str, Any]:
    stated = content.get(PARAMS) or {}
    if not isinstance(stated, dict):
        raise ModelError("must be an object", PARAMS)
    for name, value in stated.items():
        if name not in PARAMETERS:
            names = ", ".join(sorted(PARAMETERS))
            raise ModelError(f"unknown; choose from {names}", f"{PARAMS}: {name}")
        where, kind = f"{PARAMS}: {name}", type(value)
        if name == "explain" and kind is not bool:
            raise ModelError(f"must be true or false, not {brief(value)}", where)
        if name == "quantile" and kind not in (int, float):
            raise ModelError(f"must be above 0.5 and below 1, not {brief(value)}", where)
    return {**PARAMETERS, **stated}
