"""Routes that check a request before its body is read, and errors as problems of RFC 9457."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from voxcast.errors import VoxcastError, one_line
from voxcast.refusals import refusal_of

if TYPE_CHECKING:
    from voxcast.serving.prediction_service import PredictionService
    from voxcast.web.server import Settings


JSON = "application/json"
MEDIA_TYPE = "application/problem+json"
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
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
    return Response(
        orjson.dumps(content, option=OPTIONS), status, headers, kind or "application/json"
    )


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


MAX_BODY_BYTES = 2**24  # 20,000 rows without a volume
SMALL_BYTES = 2**18  # of a body that needs no place
PLACES = 4  # for large bodies: without a proxy, connections alone would not bound the memory
# Commas, and opening braces and brackets, in texts too: of 20,000 rows, each of which may have all
# columns and parameters of its own. A parser makes fifty bytes of two.
MAX_VALUES, MAX_GROUPS = 2**20, 100_000

_BEARER = HTTPBearer(auto_error=False)


class StrictBody(BaseModel):
    """A body, or a part of one, in which an unknown name is refused."""

    model_config = ConfigDict(extra="forbid")


class _JsonRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if body.count(b",") > MAX_VALUES or body.count(b"{") + body.count(b"[") > MAX_GROUPS:
            raise HTTPException(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request has at most {MAX_VALUES} values, in {MAX_GROUPS} objects and lists; "
                "ask for fewer rows at a time",
            )
        return orjson.loads(body)


class ServiceRoute(APIRoute):
    """A route that checks the token, and the kind and size of a body in JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer, takes_json = super().get_route_handler(), self.body_field is not None

        async def checked(request: Request) -> Response:
            await _check_token(request)
            if not takes_json:
                return await answer(request)
            kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
            if kind != JSON:
                detail = f"send {JSON}; with curl: -H 'Content-Type: {JSON}'"
                raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
            stated = request.headers.get("content-length", "")
            json_request = _JsonRequest(request.scope, request.receive)
            if stated.isdigit() and int(stated[:20]) <= SMALL_BYTES:
                return await answer(json_request)
            places = request.app.state.places
            if places.locked():
                raise later(
                    HTTPStatus.TOO_MANY_REQUESTS, f"{PLACES} large requests are being answered"
                )
            async with places:
                return await answer(json_request)

        return checked


def service_router() -> APIRouter:
    """Return a router of such routes."""
    return APIRouter(route_class=ServiceRoute, max_body_size=MAX_BODY_BYTES)


async def _check_token(request: Request) -> None:
    token = settings_of(request).token
    if token is None:
        return
    sent = await _BEARER(request)
    # In constant time, so that a token cannot be guessed letter by letter.
    if sent is None or not compare_digest(sent.credentials.encode(), token.encode()):
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "needs the token of this service, as `Authorization: Bearer TOKEN`",
            {"WWW-Authenticate": "Bearer"},
        )


def settings_of(request: Request) -> Settings:
    """Return the settings of the service."""
    settings: Settings = request.app.state.settings
    return settings


def served_model(request: Request) -> PredictionService:
    """Return the version that a request began with.

    Raises
    ------
    HTTPException
        503 before a model is loaded.
    """
    if "model" not in request.state:
        request.state.model = request.app.state.switch.champion
    served: PredictionService | None = request.state.model
    if served is None:
        raise later(HTTPStatus.SERVICE_UNAVAILABLE, "no model is loaded yet", 1)
    return served
