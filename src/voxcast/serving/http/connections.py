"""Connections to one HTTP server that stay open, with limits of time and size on every answer.

Redirections are not followed: a token would go where nobody sent it.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxcast.serving.http.address import ServerAddress

MAX_ANSWER_BYTES = 2**26  # of 10,000 predictions, which are asked for at a time, are 25 MB
_PART = 2**16
Body = Callable[[], "bytes | Iterable[bytes]"]  # called for every attempt


@dataclass(frozen=True)
class Timeouts:
    """The longest waits for a server.

    Attributes
    ----------
    connect_s : float
        For the connection.
    read_s : float
        For the next bytes of an answer; the first ones come when the work is done.
    total_s : float
        For a question with all its attempts and the waits between them.
    """

    connect_s: float = 5.0
    read_s: float = 60.0
    total_s: float = 180.0


@dataclass(frozen=True)
class Question:
    """A request that changes nothing on the server, so that it may be repeated.

    Attributes
    ----------
    method, path : str
    headers : mapping
        With ``Content-Length`` where there is a body.
    body : callable, optional
        Returns the body, anew for each attempt.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Body | None = None


@dataclass(frozen=True)
class Answer:
    """What a server answered; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class AnswerTooLargeError(Exception):
    """An answer has more than `MAX_ANSWER_BYTES`."""


class Connections:
    """Open connections to a server; threads may share them.

    Parameters
    ----------
    address : ServerAddress
    timeouts : Timeouts
    """

    def __init__(self, address: ServerAddress, timeouts: Timeouts) -> None:
        self.address = address
        self.timeouts = timeouts
        self._proxy = address.proxy()
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        weakref.finalize(self, _close_all, self._idle)

    def exchange(self, question: Question, end_s: float, read_s: float | None = None) -> Answer:
        """Ask once, and read the answer.

        Parameters
        ----------
        end_s : float
            When to give up, on the clock of `time.monotonic`.
        read_s : float, optional
            Replaces that of the time-outs.

        Raises
        ------
        OSError, http.client.HTTPException
            If there is no connection, or it breaks; `TimeoutError` if the answer is late.
        AnswerTooLargeError
            If the answer is too large.
        """
        while (connection := _popped(self._idle)) is not None:
            with contextlib.suppress(ConnectionError):  # servers close what is idle for a while
                return self._on(connection, question, end_s, read_s)
        return self._on(self._connected(end_s), question, end_s, read_s)

    def close(self) -> None:
        """Close all that are idle."""
        _close_all(self._idle)

    def _connected(self, end_s: float) -> http.client.HTTPConnection:
        address, proxy = self.address, self._proxy
        nearest = proxy or address
        limit_s = min(self.timeouts.connect_s, _left_s(end_s))
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                nearest.host, nearest.port, timeout=limit_s, context=self._tls
            )
            if proxy is not None:
                connection.set_tunnel(address.host, address.port)
        else:
            connection = http.client.HTTPConnection(nearest.host, nearest.port, timeout=limit_s)
        try:
            connection.connect()
        except TimeoutError:
            connection.close()
            raise ConnectionError(f"no connection within {limit_s:.3g} s") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _on(
        self,
        connection: http.client.HTTPConnection,
        question: Question,
        end_s: float,
        read_s: float | None,
    ) -> Answer:
        sock = connection.sock
        limit_s = self.timeouts.read_s if read_s is None else read_s

        def set_limit() -> None:
            sock.settimeout(min(limit_s, _left_s(end_s)))

        try:
            with _broken_at(sock, end_s):
                set_limit()
                self._send(connection, question)
                set_limit()
                response = connection.getresponse()
                size, content = response.length, bytearray()
                while part := _next_part(response, set_limit):
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise AnswerTooLargeError
                if size is not None and len(content) < size:  # an end, to `read1`
                    raise http.client.IncompleteRead(bytes(content), size - len(content))
            response.close()  # not the connection
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, headers, bytes(content))

    def _send(self, connection: http.client.HTTPConnection, question: Question) -> None:
        path = self.address.prefix + question.path
        if self._proxy is not None and self._tls is None:
            path = f"http://{self.address.host_in_url}:{self.address.port}{path}"
        body = None if question.body is None else question.body()
        headers = dict(question.headers)
        if self._proxy is not None and self._tls is None:
            headers["Host"] = f"{self.address.host_in_url}:{self.address.port}"
        try:
            connection.request(question.method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # It may have refused what it did not want to read; then its answer is there.
            if body is None:
                raise


def _popped(
    connections: deque[http.client.HTTPConnection],
) -> http.client.HTTPConnection | None:
    try:
        return connections.pop()
    except IndexError:  # another thread was faster, or there is none
        return None


def _close_all(connections: deque[http.client.HTTPConnection]) -> None:
    while (connection := _popped(connections)) is not None:
        connection.close()


@contextlib.contextmanager
def _broken_at(sock: socket, end_s: float) -> Iterator[None]:
    """Break a connection at a time, whatever is waited for; `TimeoutError` then.

    The time-out of a socket is that of its next bytes: a header may come letter by letter, and
    ``100 Continue`` for ever.
    """
    timer = threading.Timer(_left_s(end_s), _break, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        _left_s(end_s)
        raise
    finally:
        timer.cancel()
    _left_s(end_s)  # what is cut off looks like an end


def _break(sock: socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        socket.shutdown(sock, SHUT_RDWR)  # also below TLS


def _next_part(response: http.client.HTTPResponse, set_limit: Callable[[], None]) -> bytes:
    set_limit()
    return response.read1(_PART)


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
