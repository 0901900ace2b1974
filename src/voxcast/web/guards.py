"""Routes that check a request before its body is read: token, kind and size; and its model."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.responses import Response

from voxcast.web.problems import later

if TYPE_CHECKING:
    from voxcast.web.model_switch import ServedModel
    from voxcast.web.settings import Settings

JSON = "application/json"
MAX_BODY_BYTES = 2**24  # 20,000 rows without a volume
SMALL_BYTES = 2**18  # of a body that needs no place
PLACES = 4  # for large bodies
# Commas, and opening braces and brackets, in texts too: of 20,000 rows, of which each may have all
# columns and parameters of its own. A parser makes fifty bytes of two.
MAX_VALUES, MAX_GROUPS = 2**20, 100_000

_BEARER = HTTPBearer(auto_error=False)


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
            _check_kind(request)
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


def _check_kind(request: Request) -> None:
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        detail = f"send {JSON}; with curl: -H 'Content-Type: {JSON}'"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)


def settings_of(request: Request) -> Settings:
    """Return the settings of the service."""
    settings: Settings = request.app.state.settings
    return settings


def served_model(request: Request) -> ServedModel:
    """Return the version that a request began with.

    Raises
    ------
    HTTPException
        503 before a model is loaded.
    """
    if "model" not in request.state:
        request.state.model = request.app.state.switch.champion
    served: ServedModel | None = request.state.model
    if served is None:
        raise later(HTTPStatus.SERVICE_UNAVAILABLE, "no model is loaded yet", 1)
    return served
