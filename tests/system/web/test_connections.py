"""Connections that ask slowly, at length or without reading, against a server process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_server import free_port, running_server
from voxcast.web.guards.http_protocol import (
    HEADERS_S,
    LINGER_S,
    MAX_CONNECTIONS,
    MAX_OF_CLIENT,
    MAX_WAITING,
    WRITING_S,
)
from voxcast.web.guards.limited_bodies import MAX_JSON_BYTES
from voxcast.web.json_bodies import BULK_PLACES
from voxcast.web.listeners import listeners

TOKEN = "0123456789abcdef-secret"  # noqa: S105
PATIENCE_S = 20.0  # beyond the time that the service gives
REFUSED = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"
STYLE = b"GET /page/figures.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def port(champion_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a service with a token, to which other machines can connect."""
    (tokens := tmp_path_factory.mktemp("token") / "token").write_text(TOKEN)
    number, module = free_port(), [sys.executable, "-m", "voxcast.cli"]
    words = ["serve", "--host", "0.0.0.0", "--port", str(number), "--rate", "0"]  # noqa: S104
    options = ["--token-file", str(tokens), "--project", str(champion_project)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    with running_server([*module, *words, *options], number, champion_project, variables):
        yield number


def _connected(port: int, patience_s: float = PATIENCE_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=patience_s)


def _rest(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def _trickled(port: int, request: bytes, again: bytes, every_s: float, most_s: float) -> bytes:
    """Send a request and then a little of ``again``, until the connection breaks.

    Returns what came; fails if the connection outlives ``most_s``.
    """
    with _connected(port) as connection:
        connection.sendall(request)
        came, deadline = b"", time.monotonic() + most_s
        connection.settimeout(every_s)
        while time.monotonic() < deadline:
            try:
                connection.sendall(again)
                came += (part := connection.recv(2**16))
                if not part:  # the server sends no more: does it still listen?
                    time.sleep(every_s)
            except TimeoutError:
                continue
            except ConnectionError:
                return came
    raise AssertionError(f"the connection lives after {most_s} s: {came[:200]!r}")


@pytest.mark.parametrize(
    ("request_bytes", "again", "status", "seconds"),
    [
        pytest.param(REFUSED, b"x", b"401", LINGER_S, id="a body after its refusal"),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1\r\nx\r\n", b"200", LINGER_S, id="a body that nobody wants",
        ),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\r\n", b"200", HEADERS_S, id="empty lines",
        ),
        pytest.param(b"BREW / HTTP/1.1\r\n\r\n", b"x", b"400", LINGER_S, id="no HTTP"),
    ],
)  # fmt: skip
def test_bytes_after_an_answer_do_not_keep_a_connection(
    port: int, request_bytes: bytes, again: bytes, status: bytes, seconds: float
) -> None:
    came = _trickled(port, request_bytes, again, 0.5, seconds + PATIENCE_S)
    assert came.startswith(b"HTTP/1.1 " + status)
    assert came.count(b"HTTP/1.1 ") == 1


def test_one_byte_after_a_refusal_does_not_keep_a_connection(port: int) -> None:
    with _connected(port) as connection:
        connection.sendall(REFUSED)
        came = connection.recv(2**16)
        connection.sendall(b"{")
        came += _rest(connection)  # ends when the server closes
    assert came.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in came


def test_a_refusal_reaches_a_client_that_sends_all_before_it_reads(port: int) -> None:
    with _connected(port) as connection:
        connection.sendall(REFUSED)
        connection.sendall(b" " * 8_000_000)
        assert _rest(connection).startswith(b"HTTP/1.1 401")


def test_a_request_that_is_received_keeps_its_connection(port: int) -> None:
    ask = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    with _connected(port) as connection:
        for _ in range(3):
            connection.sendall(ask)
            reply = b""
            while not reply.endswith(b"}"):
                reply += connection.recv(2**16)
            assert reply.startswith(b"HTTP/1.1 401")
            assert b"connection: close" not in reply


def test_trailers_are_bounded_and_are_no_headers(port: int) -> None:
    with _connected(port) as connection:
        connection.sendall(
            b"POST /models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
        )
        assert connection.recv(2**16).startswith(b"HTTP/1.1 401")
    with _connected(port) as connection, pytest.raises(ConnectionError):  # noqa: PT012
        connection.sendall(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n0\r\nX-Long: "
        )
        for _ in range(1000):  # 100 MB, in less than the time for a body
            connection.sendall(b"a" * 100_000)


def test_who_does_not_read_is_closed_and_holds_no_place(port: int) -> None:
    document = (
        b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    )
    held, started_s = [], time.monotonic()
    for _ in range(3):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect(("127.0.0.1", port))
        held.append(connection)
    for _ in range(500):  # until an answer of each is more than the kernel takes
        for connection in held:
            connection.sendall(document)
        time.sleep(0.1)
        if _in_flight(port) == len(held) and _in_flight(port) == len(held):
            break
    assert _in_service(port, held) == len(held)
    deadline = time.monotonic() + 2 * WRITING_S + PATIENCE_S
    while _in_service(port, held) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert _in_service(port, held) == 0
    assert time.monotonic() - started_s > WRITING_S / 2  # not by the end of its keep-alive
    assert _in_flight(port) == 0
    for connection in held:
        connection.close()


def _in_flight(port: int) -> int:
    """Return how many requests are being answered, but for the one that asks this."""
    question = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(question, timeout=PATIENCE_S) as reply:
        line = next(x for x in reply if x.startswith(b"voxcast_requests_in_flight "))
    return int(float(line.split()[1])) - 1


def _in_service(port: int, clients: list[socket.socket]) -> int:
    """Return how many connections of these clients the server still has."""
    ours = {client.getsockname()[1] for client in clients}
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(row[1], row[2], row[3]) for row in table if row[3] == "01"]  # established
    pairs = {(int(a.split(":")[1], 16), int(b.split(":")[1], 16)) for a, b, _ in ends}
    return sum((port, client) in pairs for client in ours)


def test_who_reads_slowly_gets_all(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/page/figures.css") as reply:
        size = len(reply.read())
    number = MAX_WAITING // 2
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE_S)
        connection.connect(("127.0.0.1", port))
        connection.sendall(STYLE * number)
        connection.shutdown(socket.SHUT_WR)  # closed after the last answer
        came = 0
        while part := connection.recv(2000):
            came += len(part)
            time.sleep(0.01)
    assert came > number * size


def test_a_long_pipeline_is_closed_and_stores_nothing(port: int) -> None:
    pid = listeners(port)[0].pid
    few = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with _connected(port) as connection:
        connection.sendall(few * MAX_WAITING)
        connection.shutdown(socket.SHUT_WR)  # half closed, it is answered all the same
        assert _rest(connection).count(b"HTTP/1.1 401") == MAX_WAITING
    before = _resident_bytes(pid)
    many = few * (245_000 // len(few))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(_connected(port)) for _ in range(40)]
        for connection in connections:
            with contextlib.suppress(ConnectionError):
                connection.sendall(many)
        answers = [_rest(connection).count(b"HTTP/1.1 ") for connection in connections]
    assert max(answers) <= MAX_WAITING + 1
    assert _resident_bytes(pid) - before < 20_000_000


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(s.split()[1] for s in status.splitlines() if s.startswith("VmRSS")))


@pytest.mark.parametrize(
    "refused",
    [
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_problem_like_others(port: int, refused: bytes) -> None:
    with _connected(port) as connection:
        connection.sendall(refused)
        connection.shutdown(socket.SHUT_WR)
        head, _, body = _rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"content-type: application/problem+json" in head
    assert b"x-content-type-options: nosniff" in head
    assert re.search(rb"(?i)x-request-id: \S", head) or b"connection: close" in head
    assert json.loads(body)["status"] == 400


def test_an_address_has_a_part_of_the_connections(port: int) -> None:
    other = _address_of_this_machine()
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((other, port), timeout=PATIENCE_S))
            for _ in range(MAX_OF_CLIENT + 1)
        ]
        assert _rest(connections[-1]) == b""  # closed at once
        request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connections[0].sendall(request)
        assert _rest(connections[0]).startswith(b"HTTP/1.1 200")
        again = socket.create_connection((other, port), timeout=PATIENCE_S)
        stack.enter_context(again).sendall(request)
        assert _rest(again).startswith(b"HTTP/1.1 200")
        # A proxy on this machine has the connections of many.
        of_proxy = [stack.enter_context(_connected(port)) for _ in range(MAX_OF_CLIENT + 1)]
        of_proxy[-1].sendall(request)
        assert _rest(of_proxy[-1]).startswith(b"HTTP/1.1 200")


def test_connections_that_ask_nothing_give_way(port: int) -> None:
    """The service has them all, though it was started where a process may open 1024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * MAX_CONNECTIONS:
        pytest.skip(f"this machine allows {hard} open files")
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * MAX_CONNECTIONS), hard))
        connections = [stack.enter_context(_connected(port)) for _ in range(MAX_CONNECTIONS)]
        assert _answered(connections[0], ask)  # is now the one that asked last
        assert _answered(stack.enter_context(_connected(port)), ask)
        assert _rest(connections[1]) == b""
        assert _answered(connections[0], ask)


def _answered(connection: socket.socket, request: bytes) -> bool:
    """Tell whether a question whose answer is an object is answered."""
    connection.sendall(request)
    came = b""
    while not came.endswith(b"}"):
        part = connection.recv(2**16)
        assert part, came
        came += part
    return came.startswith(b"HTTP/1.1 200")


def test_large_questions_have_few_places(port: int) -> None:
    """Else each of 512 requests could hold 8 MiB."""
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
        b"Authorization: Bearer %s\r\nConnection: close\r\n\r\n"
    )
    large = head % (MAX_JSON_BYTES, TOKEN.encode()) + b" " * (MAX_JSON_BYTES - 1)
    small = head % (2, TOKEN.encode()) + b"{}"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(_connected(port)) for _ in range(BULK_PLACES)]
        for connection in slow:
            connection.sendall(large)
        refused = stack.enter_context(_connected(port))
        refused.sendall(large + b" ")
        assert (answer := _rest(refused)).startswith(b"HTTP/1.1 429")
        assert b"retry-after: " in answer
        other = stack.enter_context(_connected(port))
        other.sendall(small)
        assert _rest(other).startswith(b"HTTP/1.1 422")
        for connection in slow:
            connection.sendall(b" ")
            assert _rest(connection).startswith(b"HTTP/1.1 422")


def _address_of_this_machine() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; an address for documentation
        except OSError:
            pytest.skip("this machine has only loopback addresses")
        address: str = probe.getsockname()[0]
    return address
