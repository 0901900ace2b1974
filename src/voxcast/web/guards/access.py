"""Who is answered: the name that was called, the token, the load, and a loaded model."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from voxcast.web.problems import problem

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from voxcast.web.settings import Settings

MAX_IN_FLIGHT = 512
RETRY_S = 1  # after which to ask again
# Answered without a token and without a model.
OPEN_PATHS = ("/health", "/health/live", "/health/ready", "/ping")
# Answered without a token and without a model.
PAGE_PATHS = ("/", "/page/")
MODEL_FREE_PATHS = ("/metrics", "/openapi.json", "/version")


@dataclass
class Access:
    """An ASGI application that refuses requests before another one reads them.

    Attributes
    ----------
    app : callable
        The other application. ``state.model`` of a request is the model that it ends with.
    settings : Settings
        Token and names.
    """

    app: ASGIApp
    settings: Settings
    in_flight: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["state"]["model"] = scope["app"].state.model
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if _needs_no_token(scope["path"]):  # answered from memory, and read by anyone at any pace
            await self.app(scope, receive, send)
            return
        self.in_flight += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.in_flight -= 1

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is not read, or None."""
        headers, path = dict(scope["headers"]), scope["path"]
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return problem(HTTPStatus.BAD_REQUEST, "has more than one `Host`", path=path)
        name = headers.get(b"host", b"").decode("latin-1")
        if self.settings.hosts and _without_port(name) not in self.settings.hosts:
            detail = "this service does not answer to that name; see --allow-host"
            return problem(HTTPStatus.MISDIRECTED_REQUEST, detail, path=path)
        if _needs_no_token(path):
            return None
        if self.in_flight >= MAX_IN_FLIGHT:
            detail = f"{MAX_IN_FLIGHT} requests are being answered"
            return _later(HTTPStatus.TOO_MANY_REQUESTS, detail, path)
        if not self._has_token(headers.get(b"authorization", b"")):
            detail = "needs the token of this service, as `Authorization: Bearer TOKEN`"
            challenge = {"WWW-Authenticate": "Bearer"}
            return problem(HTTPStatus.UNAUTHORIZED, detail, challenge, path)
        if scope["state"]["model"] is None and path not in MODEL_FREE_PATHS:
            return _later(HTTPStatus.SERVICE_UNAVAILABLE, "no model is loaded yet", path)
        return None

    def _has_token(self, header: bytes) -> bool:
        token = self.settings.token
        if token is None:
            return True
        scheme, _, credentials = header.partition(b" ")
        # In constant time, so that a token cannot be guessed letter by letter.
        same = hmac.compare_digest(credentials.strip(), token.encode())
        return same and scheme.lower() == b"bearer"


def _needs_no_token(path: str) -> bool:
    return path in (*OPEN_PATHS, PAGE_PATHS[0]) or path.startswith(PAGE_PATHS[1])


def _without_port(name: str) -> str:
    """Return a host without its port.

    Examples
    --------
    >>> [_without_port(name) for name in ("localhost:5001", "[::1]:5001", "[::1]", "Node.lab")]
    ['localhost', '[::1]', '[::1]', 'node.lab']
    """
    host, _, port = name.rpartition(":")
    return (host if host and port.isdigit() else name).lower()


def _later(status: HTTPStatus, detail: str, path: str) -> Response:
    return problem(status, detail, {"Retry-After": str(RETRY_S)}, path)
