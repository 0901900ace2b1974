"""One line a request, and the headers that every answer has.

The line reveals nothing of the question: no query, body, file name or token.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from voxcast.web.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from voxcast.web.routes.metrics import Metrics

REQUEST_ID = b"x-request-id"
_SANE_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
UNMATCHED = "unmatched"  # the route of an unknown path, which a client chooses
# Of every answer that does not say otherwise.
HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}

logger = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; records of requests have fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content: dict[str, Any] = {"time": moment, "level": record.levelname.lower()}
        request = getattr(record, "request", None)
        content |= {"message": record.getMessage()} if request is None else request
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


@dataclass(frozen=True)
class RequestLog:
    """An ASGI application that logs, counts and completes the answers of another one."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, sent = time.perf_counter(), 0, 0
        identifier = _request_id(dict(scope["headers"]).get(REQUEST_ID, b""))
        scope.setdefault("state", {})["request_id"] = identifier

        async def completed(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                stated = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"], (REQUEST_ID, identifier.encode()),
                    *((name, value) for name, value in HEADERS.items() if name not in stated),
                ]  # fmt: skip
            sent += len(message.get("body", b""))
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self.app(scope, receive, completed)
        except Exception:
            logger.exception("request %s failed", identifier)
            if status:  # the answer has begun: only its end can tell
                raise
            answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of the service; its log "
                             f"has it under {identifier}", path=scope["path"])  # fmt: skip
            await answer(scope, receive, completed)
        finally:
            self.metrics.in_flight.dec()
            self._log(scope, identifier, status, time.perf_counter() - start, sent)

    def _log(self, scope: Scope, identifier: str, status: int, seconds: float, sent: int) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        self.metrics.count_answer(route, status, seconds)
        if not logger.isEnabledFor(logging.INFO):
            return
        model = scope["state"].get("model")
        line = {
            "request_id": identifier, "method": scope["method"], "route": route, "status": status,
            "duration_ms": round(1e3 * seconds, 2), "bytes": sent,
            "model_version": None if model is None else model.version,
            "client": scope["client"][0] if scope.get("client") else None,
        }  # fmt: skip
        logger.info("%s %s", route, status, extra={"request": line})


def _request_id(stated: bytes) -> str:
    """Return the id of a request: the client's, if it cannot break a line or a page."""
    return stated.decode() if _SANE_ID.fullmatch(stated) else secrets.token_hex(8)
