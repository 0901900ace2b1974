"""HTTP connections that do not wait for ever: uvicorn limits neither headers nor connections."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from voxcast.web.guards.client_address import client_of, is_here
from voxcast.web.guards.request_log import HEADERS
from voxcast.web.problems import problem

if TYPE_CHECKING:
    from asyncio import Transport
    from asyncio.events import TimerHandle

MAX_CONNECTIONS = 2_000
MAX_OF_CLIENT = 200  # connections; a proxy on this machine has those of all
MAX_WAITING = 16  # requests of a connection behind the one that is being answered
MAX_HEADER_BYTES = 2**16  # beyond the first part that is received
HEADERS_S = 15.0  # from the first byte of a request, or from the connection, to its headers' end
LINGER_S = 2.0  # in which the rest of a request is dropped after its answer
WRITING_S = 20.0  # after which an answer must be read at this rate
LEAST_BYTES_A_SECOND = 10_000


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections that ask slowly, at length, or without reading, and those above a number.

    How fast and how large a body is that someone reads is limited by
    `voxcast.web.guards.limited_bodies`. A body that nobody reads ends with the answer.
    """

    _of_client: ClassVar[Counter[str]] = Counter()
    # Those that wait for a request or its headers, the one that has waited longest first.
    _waiting: ClassVar[dict[BoundedProtocol, None]] = {}
    _client = ""
    _timer: TimerHandle | None = None
    _writing_timer: TimerHandle | None = None
    _unparsed_bytes = 0  # received since the request began, or since the last part of its body
    _in_request = False
    _is_persistent = False
    _no_more_input = False
    _ended = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Accept a connection; where all places are taken, one that asks nothing gives way."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self._client = client_of(address)
        self._of_client[self._client] += 1
        too_many = self._of_client[self._client] > MAX_OF_CLIENT and not is_here(address)
        if too_many:
            transport.abort()
            return
        self._waiting[self] = None
        if len(self.connections) > MAX_CONNECTIONS:
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
        self._close_after(HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_timer()
        self._stop_writing_timer()
        self._of_client[self._client] -= 1
        if not self._of_client[self._client]:
            del self._of_client[self._client]
        self._waiting.pop(self, None)
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self._ended:
            return
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._in_request:
            if self._unparsed_bytes > MAX_HEADER_BYTES:
                self.transport.abort()
        elif self._timer is None and not self._is_answering():
            self._close_after(HEADERS_S)  # empty lines, which end uvicorn's time for the next one

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that has asked all, until it has its answers."""
        self._no_more_input = self._is_answering() and not self._in_request
        return self._no_more_input and not self._ended

    def on_message_begin(self) -> None:
        """Expect headers."""
        super().on_message_begin()
        self._in_request, self._unparsed_bytes = True, 0
        self._close_after(HEADERS_S)

    def on_headers_complete(self) -> None:
        """Hand a request over."""
        super().on_headers_complete()
        self._waiting.pop(self, None)
        self._stop_timer()
        self.headers = []  # not the list that was handed over: trailers are no headers
        # An answer that begins before the request has come says that it is the last.
        self._is_persistent, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.cycle.transport = cast("Transport", _AnswerTransport(self))
        if len(self.pipeline) > MAX_WAITING:
            self.transport.abort()
            raise ConnectionAbortedError  # ends the parser, which has thousands in one part

    def on_body(self, body: bytes) -> None:
        """Hand a part of a body over."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Know the end of a request."""
        self._in_request = False
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._is_persistent
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answer the next request, or wait for one."""
        super().on_response_complete()
        if self._is_answering():
            return
        if self._no_more_input:
            self.end()
        elif not self._ended and not self.transport.is_closing():
            self._waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP as any other problem."""
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started:
            answer = problem(HTTPStatus.BAD_REQUEST, msg)
            headers = [*answer.raw_headers, *HEADERS.items(), (b"connection", b"close")]
            lines = [b"%s: %s\r\n" % header for header in headers]
            head = STATUS_LINE[HTTPStatus.BAD_REQUEST], *lines, b"\r\n"
            self.transport.write(b"".join((*head, bytes(answer.body))))
        self._in_request = True  # what follows is dropped
        self.end()

    def end(self) -> None:
        """Close the connection when all is sent; drop what the client still sends.

        Closed at once, it would be reset by what comes, and the client would lose its answer.
        """
        if self.transport.is_closing() or self._ended:
            return
        self._ended = True
        self.pipeline.clear()
        if self._in_request:
            self.transport.write_eof()
            self._close_after(LINGER_S)
        else:
            self.transport.close()
            self._watch_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that asks nothing more."""
        self.end()

    def shutdown(self) -> None:
        """Close a connection after the answer that it waits for."""
        self._is_persistent = False
        super().shutdown()

    def pause_writing(self) -> None:
        """Let an answer wait for its reader, who must go on reading."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """Continue an answer."""
        super().resume_writing()
        if not self._ended:
            self._stop_writing_timer()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_writing(self) -> None:
        self._stop_writing_timer()
        unread = self.transport.get_write_buffer_size()
        self._writing_timer = self.loop.call_later(WRITING_S, self._check_writing, unread)

    def _check_writing(self, unread: int) -> None:
        read = unread - self.transport.get_write_buffer_size()
        if read < WRITING_S * LEAST_BYTES_A_SECOND:
            self.transport.abort()
        else:
            self._watch_writing()

    def _stop_writing_timer(self) -> None:
        if self._writing_timer is not None:
            self._writing_timer.cancel()
            self._writing_timer = None

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _AnswerTransport:
    """What an answer is written to: it ends the connection as the protocol does."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.end
