"""Answers in JSON, and errors as ``application/problem+json`` of RFC 9457, with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from voxcast.errors import VoxcastError, one_line
from voxcast.serving.rows import refusal_of

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 500  # letters of a reason, which may repeat a value of the request
# Of MLflow's protocol, whose clients look for the reason in other fields.
INVOCATIONS = "/invocations"
# The reasons of refusals that Starlette leaves to us, or writes as plain text.
REASONS = {
    HTTPStatus.BAD_REQUEST: "this service does not answer to that name; see --allow-host",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is too large; ask for fewer rows at a time, or "
    "see --max-upload",
}
_TOO_LARGE = "Content Too Large"
_TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "description": "a refusal; see `detail`, and `Retry-After` of 429 and 503",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": _TEXT,
                    "title": _TEXT,
                    "status": {"type": "integer"},
                    "detail": {**_TEXT, "description": "what is wrong, where, and what to do"},
                },
            }
        }
    },
}


def json_answer(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None, kind: str = ""
) -> Response:
    """Return an answer; NaN and infinities become null."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers, kind or "application/json")


def later(status: HTTPStatus, problem: str, seconds: int = 2) -> HTTPException:
    """Return the refusal of a question that may be repeated after some seconds."""
    return HTTPException(
        status, f"{problem}; ask again in a moment", {"Retry-After": str(seconds)}
    )


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, path: str = ""
) -> Response:
    """Return the answer to a request that is refused.

    Parameters
    ----------
    status : int
        HTTP status.
    detail : str
        The reason.
    headers : mapping, optional
        Further headers.
    path : str
        Path of the request; answers to `INVOCATIONS` have MLflow's fields too.
    """
    detail = detail.encode(errors="replace").decode()  # JSON has texts that UTF-8 has not
    detail = detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…"
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status,
               "detail": detail}  # fmt: skip
    if path == INVOCATIONS:
        content |= {"error_code": "BAD_REQUEST", "message": detail}
    return json_answer(content, status, headers, MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Let an application answer errors of users with 4xx and their reason."""

    async def of_voxcast(request: Request, error: Any) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, one_line(error), path=request.url.path)

    async def of_schema(request: Request, error: Any) -> Response:
        path = request.url.path
        status = HTTPStatus.BAD_REQUEST if path == INVOCATIONS else HTTPStatus.UNPROCESSABLE_ENTITY
        return problem(status, ": ".join(filter(None, refusal_of(error.errors()))), path=path)

    async def of_http(request: Request, error: Any) -> Response:
        headers, detail, path = dict(error.headers or {}), str(error.detail), request.url.path
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{path}: answers {headers.get('Allow')}; see GET /openapi.json"
        if detail == _TOO_LARGE:
            detail = REASONS[HTTPStatus.REQUEST_ENTITY_TOO_LARGE]
        return problem(error.status_code, detail, headers, path)

    async def of_disconnect(request: Request, error: Any) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, "the client went away")  # for the log only

    app.add_exception_handler(VoxcastError, of_voxcast)
    app.add_exception_handler(ClientDisconnect, of_disconnect)
    app.add_exception_handler(RequestValidationError, of_schema)
    app.add_exception_handler(HTTPException, of_http)
