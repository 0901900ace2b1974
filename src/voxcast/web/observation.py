"""The record of each request: a line of the log, and the numbers of ``GET /metrics``.

Neither reveals anything of the question: no query, body, file name or token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import Request
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from voxcast.web.guards import REASONS, problem, service_router

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from voxcast.web.model_switch import ModelSwitch

REQUEST_ID = b"x-request-id"
DRAIN_S = 30.0
_OF_BODY = frozenset({b"content-length", b"transfer-encoding"})
_SANE_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
UNMATCHED = "unmatched"  # the route of an unknown path, which a client chooses
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 20_000)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Of every answer that does not say otherwise.
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cache-control": b"no-store",
}
router = service_router()
logger = logging.getLogger(__name__)
# Times at which counters began, a series beside each of them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client lacks the type


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; records of requests have fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content: dict[str, Any] = {"time": moment, "level": record.levelname.lower()}
        content |= getattr(record, "request", None) or {"message": record.getMessage()}
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(content).decode()


class Metrics:
    """The counters of one service; labels are routes and statuses, never chosen by a client."""

    def __init__(self, switch: ModelSwitch) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, CPU time, open files
        self.requests = Counter(
            "voxcast_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "voxcast_request_seconds", "Time to answer", ["route"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "voxcast_requests_in_flight", "Requests being answered", registry=registry
        )
        self.rows = Histogram(
            "voxcast_batch_rows", "Rows of a call of the model", buckets=ROWS, registry=registry
        )
        self._model = Gauge(
            "voxcast_model_info", "Version of the model that is served", ["version"],
            registry=registry,
        )  # fmt: skip
        Gauge(
            "voxcast_model_switches", "How often another version took over", registry=registry
        ).set_function(lambda: switch.switches)
        Gauge(
            "voxcast_model_versions_refused", "Versions that cannot be served", registry=registry
        ).set_function(lambda: len(switch.refused))
        self._switch = switch

    def text(self) -> bytes:
        """Return all of them in Prometheus' text format."""
        self._model.clear()
        if self._switch.champion is not None:
            self._model.labels(self._switch.champion.version).set(1)
        return generate_latest(self.registry)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics of this process."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)


@dataclass(frozen=True)
class Observation:
    """An ASGI application that logs, counts and completes the answers of another one."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, sent, plain = time.perf_counter(), 0, 0, 0
        stated = dict(scope["headers"])
        identifier = _request_id(stated.get(REQUEST_ID, b""))
        scope.setdefault("state", {})["request_id"] = identifier
        # A client that expects permission to send waits for it.
        has_rest = not _OF_BODY.isdisjoint(stated) and b"expect" not in stated

        async def received() -> Message:
            nonlocal has_rest
            message = await receive()
            has_rest = message.get("more_body", False)
            return message

        async def drop_rest() -> None:
            """Receive the rest of a body: most clients read no answer before they sent all."""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    while has_rest:
                        await received()

        async def completed(message: Message) -> None:
            nonlocal status, sent, plain
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                is_text = headers.get(b"content-type", b"").startswith(b"text/plain")
                plain = message["status"] if is_text and message["status"] in REASONS else 0
                status = message["status"]
                if status >= HTTPStatus.BAD_REQUEST:
                    await drop_rest()
                message["headers"] = [
                    *message["headers"], (REQUEST_ID, identifier.encode()),
                    *((name, value) for name, value in HEADERS.items() if name not in headers),
                ]  # fmt: skip
            if not plain:  # else a problem takes its place
                sent += len(message.get("body", b""))
                await send(message)

        async def refuse(code: int, detail: str) -> None:
            await problem(code, detail, path=scope["path"])(scope, receive, completed)

        self.metrics.in_flight.inc()
        try:
            await self.app(scope, received, completed)
            if plain:
                await refuse(plain, REASONS[HTTPStatus(plain)])
        except Exception:
            logger.exception("request %s failed", identifier)
            if status:  # the answer has begun: only its end can tell
                raise
            detail = f"an error of the service; its log has it under {identifier}"
            await refuse(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
        finally:
            self.metrics.in_flight.dec()
            self._log(scope, identifier, status, time.perf_counter() - start, sent)

    def _log(self, scope: Scope, identifier: str, status: int, seconds: float, sent: int) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
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
