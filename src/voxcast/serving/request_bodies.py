"""Bodies of HTTP requests, checked before MLflow reads them: their size, JSON and parameters.

MLflow reads bodies of any size, fails on some JSON as if the server were at fault, and passes over
parameters that the model does not have, so that a misspelt quantile would be answered as another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_BYTES = 2**27  # some hundreds of rows with a volume, or 500,000 without
BAD_REQUEST, TOO_LARGE = 400, 413
_JSON = "application/json"


@dataclass(frozen=True)
class CheckedBodies:
    """An ASGI application that refuses what another one should not be asked.

    Attributes
    ----------
    app : callable
        The other application.
    parameters : collection of str
        Names that ``params`` of a JSON request may have.
    """

    app: Application
    parameters: Collection[str]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            problem = f"a request has at most {MAX_BYTES} bytes; ask for fewer rows at a time"
            await _refuse(send, TOO_LARGE, problem)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if headers.get(b"content-type", b"").decode("latin-1").startswith(_JSON):
            problem = self._problem_of(body)
            if problem:
                await _refuse(send, BAD_REQUEST, problem)
                return
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return unread.pop() if unread else await receive()

        await self.app(scope, again, send)

    def _problem_of(self, body: bytes) -> str:
        """Return in words why a JSON body is refused; empty if it is not."""
        try:
            content = json.loads(body)
        except RecursionError:
            return "not JSON that can be read: its lists or objects are nested too deeply"
        except ValueError as error:  # also numbers of thousands of digits
            return f"not JSON that can be read: {error}"
        params = content.get("params") if isinstance(content, dict) else None
        if not isinstance(params, dict):
            return ""
        names = ", ".join(sorted(self.parameters))
        unknown = next((name for name in params if name not in self.parameters), None)
        return "" if unknown is None else f"params: {unknown}: unknown; choose from {names}"


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is larger than `MAX_BYTES`.

    The rest of a larger one is received and dropped, since clients read no answer before they have
    sent all. What a client that went away had sent is returned too; the answer reaches nobody.
    """
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BYTES:
            parts.clear()
        else:
            parts.append(part)
        more = message.get("more_body", False)
    return None if size > MAX_BYTES else b"".join(parts)


async def _refuse(send: Send, status: int, problem: str) -> None:
    answer = json.dumps({"error_code": "BAD_REQUEST", "message": problem}).encode()
    headers = [(b"content-type", _JSON.encode()), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
