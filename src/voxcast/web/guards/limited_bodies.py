"""Bodies of requests: their size is limited while they are received.

Bodies and headers that come slowly are left to a proxy, see ``nginx.conf``.
"""

from __future__ import annotations

import asyncio
import contextlib
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
DROP_S = 30.0  # in which the rest of a body that is refused is received and dropped


@dataclass(frozen=True)
class LimitedBodies:
    """An ASGI application that ends the reading of bodies that are too large.

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
    """Return a `receive` that raises when a body exceeds its limit."""
    size, complete = 0, False

    async def limited() -> Message:
        nonlocal size, complete
        message = await receive()
        if complete:  # what comes now is that the client has gone
            return message
        size += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if size > limit:
            if not complete:
                await _drop(receive, limit)
            raise _too_large(limit)
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


def _too_large(limit: int) -> HTTPException:
    detail = f"a request like this has at most {limit} bytes; ask for fewer rows at a time"
    return HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, {"Connection": "close"})
