"""Errors as answers: ``application/problem+json`` of RFC 9457, with the reason in ``detail``."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from voxcast.errors import VoxcastError, one_line

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

MEDIA_TYPE = "application/problem+json"


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return the answer of a request that is refused."""
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status,
               "detail": detail}  # fmt: skip
    return JSONResponse(content, status, headers, MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Let an application answer errors of users with 4xx and their reason."""

    async def of_voxcast(request: Request, error: Any) -> JSONResponse:
        return problem(HTTPStatus.BAD_REQUEST, one_line(error))

    async def of_schema(request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        detail = f"{where}: {first['msg']}" if where else first["msg"]
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)

    async def of_http(request: Request, error: Any) -> JSONResponse:
        return problem(error.status_code, str(error.detail), dict(error.headers or {}))

    app.add_exception_handler(VoxcastError, of_voxcast)
    app.add_exception_handler(RequestValidationError, of_schema)
    app.add_exception_handler(HTTPException, of_http)
