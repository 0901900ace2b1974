"""A small HTTP server whose answers go wrong as told, as a network or a busy server would."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["Handler"], None]


@dataclass
class Received:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int  # number of the connection, from 1


@dataclass
class MisbehavingServer:
    """Its address, what it is to do with the next requests, and what it has received."""

    url: str
    behaviours: list[Behaviour] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)

    def of(self, path: str) -> list[Received]:
        return [request for request in self.received if request.path == path]


class Handler(BaseHTTPRequestHandler):
    """Reads a request completely, and does what is next; without more to do it answers ``{}``."""

    protocol_version = "HTTP/1.1"
    connections = 0
    state: MisbehavingServer

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1
        self.number = type(self).connections

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def answer(self, status: int, content: object = None, **headers: str) -> None:
        body = json.dumps({} if content is None else content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Received(self.command, self.path, dict(self.headers), body, self.number)
        self.state.received.append(request)
        if self.path == "/ping":
            self.answer(200)
        elif self.state.behaviours:
            self.state.behaviours.pop(0)(self)
        else:
            self.answer(200)

    do_POST = do_GET


def reset(handler: Handler) -> None:
    """End the connection with RST."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.close_connection = True
    handler.rfile.close()
    handler.connection.close()


def close(handler: Handler) -> None:
    """End the connection without an answer."""
    handler.close_connection = True


def truncated(handler: Handler) -> None:
    """Send half of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "20")
    handler.end_headers()
    handler.wfile.write(b'{"half":')
    handler.close_connection = True


def truncated_chunks(handler: Handler) -> None:
    """Send the first chunk of an answer."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'8\r\n{"half":\r\n')
    handler.close_connection = True


def answers(status: int, content: object = None, **headers: str) -> Behaviour:
    return lambda handler: handler.answer(status, content, **headers)


def slow(seconds: float) -> Behaviour:
    def behave(handler: Handler) -> None:
        time.sleep(seconds)
        with contextlib.suppress(OSError):  # the client has left
            handler.answer(200)

    return behave


def dripping(parts: int, seconds: float) -> Behaviour:
    """Send a byte of the answer from time to time."""

    def behave(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(parts))
        handler.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(parts):
                handler.wfile.write(b" ")
                time.sleep(seconds)

    return behave


@contextlib.contextmanager
def misbehaving_server(*behaviours: Behaviour) -> Iterator[MisbehavingServer]:
    """Run the server in threads of this process until the block ends."""
    state = MisbehavingServer("", list(behaviours))
    handler = type("Handler", (Handler,), {"state": state, "connections": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
