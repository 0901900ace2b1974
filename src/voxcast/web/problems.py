"""Errors as answers: ``application/problem+json`` of RFC 9457, with the reason in ``detail``."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from voxcast.errors import VoxcastError, one_line
from voxcast.web.json_answers import json_answer

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 500  # letters of a reason, which may repeat a value of the request
# Where clients of MLflow's server look for the reason, see `voxcast.web.routes.invocations`.
INVOCATIONS = "/invocations"
_OF_PYDANTIC = "Value error, "  # before the reason of a validator of ours


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, path: str = ""
) -> Response:
    """Return the answer of a request that is refused.

    Parameters
    ----------
    status : int
        HTTP status.
    detail : str
        The reason.
    headers : dict, optional
        Further headers.
    path : str
        Path of the request; answers to `INVOCATIONS` have MLflow's fields too.
    """
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
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        reason = first["msg"].removeprefix(_OF_PYDANTIC)
        detail = f"{where}: {reason}" if where else reason
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, path=request.url.path)

    async def of_http(request: Request, error: Any) -> Response:
        headers = dict(error.headers or {})
        return problem(error.status_code, str(error.detail), headers, request.url.path)

    app.add_exception_handler(VoxcastError, of_voxcast)
    app.add_exception_handler(RequestValidationError, of_schema)
    app.add_exception_handler(HTTPException, of_http)
