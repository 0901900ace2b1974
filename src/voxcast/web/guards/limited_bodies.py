"""Bodies of requests: their size is limited while they are received, and so is their time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from voxcast.web.problems import INVOCATIONS, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from voxcast.web.settings import Settings

MAX_JSON_BYTES = 2**23
MAX_BULK_BYTES = 2**24  # 20,000 rows without a volume
BULK_PATHS = ("/predict/batch", INVOCATIONS)
FORM_BYTES = 2**20  # of the fields of a form beside its file
IDLE_S = 15.0  # between two parts of a body
GRACE_S = 20.0  # after which a body must come at this rate
LEAST_BYTES_A_SECOND = 10_000
DROP_S = 30.0  # in which the rest of a body that is refused is received and dropped


@dataclass(frozen=True)
class LimitedBodies:
    """An ASGI application that ends the reading of bodies that are too large or too slow.

    The handler that reads the body of another application gets an `HTTPException`.
    """

    app: ASGIApp
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        limit = self._limit(scope["path"], headers.get(b"content-type", b""))
        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit() or int(stated[:20]) > limit:
            if b"expect" not in headers:  # such a client waits for permission to send
                await _drop(receive, limit)
            refusal = _too_large(limit)
            answer = problem(
                refusal.status_code, refusal.detail, dict(refusal.headers or {}), scope["path"]
            )
            await answer(scope, receive, send)
            return
        await self.app(scope, _limited(receive, limit), send)

    def _limit(self, path: str, content_type: bytes) -> int:
        """Return how many bytes the body of a request may have."""
        if content_type.lower().startswith(b"multipart/form-data"):
            return self.settings.max_upload_bytes + FORM_BYTES
        return MAX_BULK_BYTES if path in BULK_PATHS else MAX_JSON_BYTES


def _limited(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises when a body exceeds its limits."""
    size, complete, started_s = 0, False, time.monotonic()

    async def limited() -> Message:
        nonlocal size, complete
        if complete:  # what comes now is that the client has gone
            return await receive()
        try:
            async with asyncio.timeout(IDLE_S):
                message = await receive()
        except TimeoutError:
            raise _too_slow("the body does not come") from None
        size += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if size > limit:
            if not complete:
                await _drop(receive, limit)
            raise _too_large(limit)
        needed_s = GRACE_S + size / LEAST_BYTES_A_SECOND
        if not complete and time.monotonic() - started_s > needed_s:
            raise _too_slow("the body comes too slowly")
        return message

    return limited


async def _drop(receive: Receive, limit: int) -> None:
    """Receive the rest of a body and drop it, up to ``limit`` bytes.

    Most clients read no answer before they have sent all.
    """
    size, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DROP_S):
            while more and size <= limit:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)


def _too_slow(detail: str) -> HTTPException:
    return HTTPException(HTTPStatus.REQUEST_TIMEOUT, detail, {"Connection": "close"})


def _too_large(limit: int) -> HTTPException:
    detail = f"a request like this has at most {limit} bytes; ask for fewer rows at a time"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
