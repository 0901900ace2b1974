"""Errors as answers: ``application/problem+json`` of RFC 9457, with the reason in ``detail``."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from voxcast.errors import VoxcastError, one_line
from voxcast.web.json_answers import json_answer

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 500  # letters of a reason, which may repeat a value of the request
# Where clients of MLflow's server look for the reason, see `voxcast.web.routes.invocations`.
INVOCATIONS = "/invocations"
CLIENT_GONE = "the client went away"  # for the log only
_OF_PYDANTIC = "Value error, "  # before the reason of a validator of ours

# Reasons of pydantic by their type, for those who do not know Python.
_REASONS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "extra_forbidden": "unknown field; `GET /openapi.json` lists those of each question",
    "finite_number": "must be finite",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "int_type": "must be a whole number",
    "json_invalid": "not valid JSON: {error}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "missing": "is missing",
    "model_type": "must be an object",
    "none_required": "does not belong here",
    "string_too_long": "may have at most {max_length} characters",
    "string_type": "must be a text",
    "too_long": "may have at most {max_length} entries",
    "too_short": "needs {min_length} or more entries",
}


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
    detail = detail.encode(errors="replace").decode()  # JSON has texts that UTF-8 has not
    detail = detail if len(detail) <= MAX_DETAIL else f"{detail[:MAX_DETAIL]}…"
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status,
               "detail": detail}  # fmt: skip
    if path == INVOCATIONS:
        content |= {"error_code": "BAD_REQUEST", "message": detail}
    return json_answer(content, status, headers, MEDIA_TYPE)


def _reason(error: dict[str, Any]) -> str:
    """Return why a field is wrong, without the words of a library."""
    reason = _REASONS.get(error["type"])
    if reason is None:
        return str(error["msg"]).removeprefix(_OF_PYDANTIC)
    return reason.format_map(error.get("ctx", {}))


def add_problem_handlers(app: FastAPI) -> None:
    """Let an application answer errors of users with 4xx and their reason."""

    async def of_voxcast(request: Request, error: Any) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, one_line(error), path=request.url.path)

    async def of_schema(request: Request, error: Any) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        detail = f"{where}: {_reason(first)}" if where else _reason(first)
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, path=request.url.path)

    async def of_http(request: Request, error: Any) -> Response:
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.url.path}: answers {headers.get('Allow')}; see GET /openapi.json"
        return problem(error.status_code, detail, headers, request.url.path)

    async def of_disconnect(request: Request, error: Any) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, CLIENT_GONE, path=request.url.path)

    app.add_exception_handler(VoxcastError, of_voxcast)
    app.add_exception_handler(ClientDisconnect, of_disconnect)
    app.add_exception_handler(RequestValidationError, of_schema)
    app.add_exception_handler(HTTPException, of_http)
