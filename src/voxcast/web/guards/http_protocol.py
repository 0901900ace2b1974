"""HTTP connections that do not wait for ever: uvicorn limits neither headers nor connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import Transport
    from asyncio.events import TimerHandle

MAX_CONNECTIONS = 2_000
MAX_HEADER_BYTES = 2**16  # beyond the first part that is received
HEADERS_S = 15.0  # from the first byte of a request, or from the connection, to its headers' end


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose headers are slow or large, and those above a number.

    What comes after the headers is limited by `voxcast.web.guards.limited_bodies`.
    """

    _timer: TimerHandle | None = None
    _header_bytes = 0
    _in_headers = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._close_after(HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        continues = self._in_headers  # the first part may hold the end of another request
        super().data_received(data)
        if continues and self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Expect headers."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        self._close_after(HEADERS_S)

    def on_headers_complete(self) -> None:
        """Hand a request over."""
        self._in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
