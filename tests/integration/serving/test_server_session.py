"""Questions to a server that resets, is late, busy or silent, or answers something else."""

import contextlib
import logging
import re
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from pathlib import Path

import pytest

from misbehaving_server import (
    Behaviour,
    Handler,
    answers,
    close,
    dripping,
    misbehaving_server,
    reset,
    slow,
    truncated,
    truncated_chunks,
)
from model_server import free_port
from voxcast import Client
from voxcast.errors import ConfigError, ImageError, ModelError, RequestError
from voxcast.serving.http import connections as http_connections
from voxcast.serving.http import session as server_session
from voxcast.serving.http.address import ServerAddress
from voxcast.serving.http.connections import Timeouts
from voxcast.serving.http.retries import Retries, is_transient, retry_after_s
from voxcast.serving.http.upload import Upload

FAST = Retries(attempts=4, base_s=0.01)
SECRET = "letters-and-123"  # noqa: S105


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VOXCAST_TOKEN", "VOXCAST_TOKEN_FILE", "VOXCAST_TOKEN_OVER_HTTP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "behaviour",
    [reset, close, truncated, truncated_chunks, answers(503), answers(429), answers(502)],
    ids=["reset", "close", "truncated", "truncated chunks", "503", "429", "502"],
)
def test_a_broken_or_busy_exchange_is_repeated(behaviour: Behaviour) -> None:
    right = answers(200, {"name": "voxcast"})
    with misbehaving_server(behaviour, behaviour, right) as server:
        with Client(server.url, retries=FAST) as client:
            assert client.models() == {"name": "voxcast"}
        assert len(server.of("/models")) == 3


def test_it_is_given_up_after_the_last_attempt() -> None:
    with misbehaving_server(*4 * [answers(503, {"detail": "no model is loaded"})]) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url, retries=FAST).models()
        assert len(server.of("/models")) == 4
    expected = "the server answers 503: no model is loaded, asked 4 times; ask later"
    assert str(caught.value) == f"{server.url}: {expected}"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 422, 500])
def test_a_refusal_is_not_repeated(status: int) -> None:
    with misbehaving_server(answers(status, {"detail": "cpus: too many"})) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url, retries=FAST).models()
        assert len(server.of("/models")) == 1
    assert isinstance(caught.value, RequestError) == (status in (400, 413, 415, 422))
    expected = {
        401: "the server wants a token; set VOXCAST_TOKEN or VOXCAST_TOKEN_FILE",
        404: "the server answers 404: cpus: too many; is it the server of `voxcast serve`?",
        500: "the server answers 500: cpus: too many; is it the server of `voxcast serve`?",
    }
    assert (
        str(caught.value)
        == f"{server.url}: {expected.get(status, 'request refused: cpus: too many')}"
    )


@pytest.mark.parametrize(
    ("detail", "refused"), [("path: no such image", True), ("Not Found", False)]
)
def test_what_a_question_names_may_be_missing(detail: str, refused: bool) -> None:
    missing = answers(404, {"detail": detail}, Content_Type="application/problem+json")
    with misbehaving_server(missing) as server, pytest.raises(ModelError, match=detail) as caught:
        Client(server.url).requests("/shared/gone.nii", send="path")
    assert isinstance(caught.value, RequestError) == refused


def test_the_server_says_when_to_ask_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    busy = answers(503, {"detail": "loading"}, Retry_After="1")
    with misbehaving_server(busy) as server:
        Client(server.url, retries=FAST).models()
        assert len(server.of("/models")) == 2
    assert re.search(r"answers 503: loading; asked again in 1\.0\d s", caplog.text)


def test_a_wait_beyond_the_total_is_not_begun() -> None:
    busy = answers(503, {"detail": "maintenance"}, Retry_After="3600")
    with misbehaving_server(busy) as server:
        with pytest.raises(ModelError, match="answers 503: maintenance; ask later"):
            Client(server.url, retries=FAST).models()
        assert len(server.of("/models")) == 1


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "limit"),
    [
        (slow(5), Timeouts(read_s=0.2), "200 ms|0.200 s"),
        (slow(5), Timeouts(read_s=60, total_s=0.3), "0.300 s"),
        (dripping(100, 0.05), Timeouts(read_s=1, total_s=0.4), "0.400 s"),
    ],
    ids=["silent", "silent to the end", "dripping"],
)
def test_a_late_answer_is_not_asked_for_again(
    behaviour: Behaviour, timeouts: Timeouts, limit: str
) -> None:
    with misbehaving_server(behaviour) as server:
        with pytest.raises(ModelError, match=f"does not answer within {limit}; see its log"):
            Client(server.url, retries=FAST, timeouts=timeouts).models()
        assert len(server.of("/models")) == 1


def test_a_server_that_never_answers_is_left_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_session, "PING_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ModelError, match=r"does not answer within 0\.200 s; is it running"):
            Client(url).models()


def test_an_unreachable_server_is_a_model_error() -> None:
    port = free_port()
    with pytest.raises(ModelError, match="Connection refused, asked 4 times; is it running"):
        Client(f"http://127.0.0.1:{port}", retries=FAST).models()
    with pytest.raises(ModelError, match="Connection refused; is it running"):
        Client(f"http://127.0.0.1:{port}").health()  # which is not repeated


def test_an_open_connection_is_used_again_and_a_stale_one_replaced() -> None:
    with misbehaving_server() as server, Client(server.url, retries=Retries(1)) as client:
        for _ in range(3):
            client.models()
        assert {request.connection for request in server.received} == {1}
        server.behaviours.append(close)  # as a server that closes idle connections
        client.models()
        assert server.received[-1].connection == 2


def test_a_redirection_is_not_followed() -> None:
    with misbehaving_server() as other:
        elsewhere = answers(307, Location=f"{other.url}/models")
        expected = pytest.raises(ModelError, match="answers 307: it is elsewhere, at http://127")
        with misbehaving_server(elsewhere) as server, expected:
            Client(server.url, token=SECRET, retries=FAST).models()
        assert not other.received


def test_an_answer_that_is_too_large_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "MAX_ANSWER_BYTES", 1000)
    monkeypatch.setattr(server_session, "MAX_ANSWER_BYTES", 1000)
    expected = pytest.raises(ModelError, match=r"answers with more than 1\.00 kB")
    with misbehaving_server(answers(200, 1000 * "x")) as server, expected:
        Client(server.url).models()


def test_an_answer_of_too_many_values_is_not_parsed() -> None:
    many = answers(200, {"models": [[]] * server_session.MAX_VALUES})
    expected = pytest.raises(ModelError, match="answers with more than 4194304 values")
    with misbehaving_server(many) as server, expected:
        Client(server.url).models()


@pytest.mark.parametrize(
    ("start", "again"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x", id="header"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="100 Continue"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x", id="size of a chunk"
        ),
    ],
)
def test_an_answer_that_trickles_is_late_in_the_end(start: bytes, again: bytes) -> None:
    def trickle(handler: Handler) -> None:
        handler.close_connection = True
        with contextlib.suppress(OSError):  # the client has left
            handler.wfile.write(start)
            while True:
                handler.wfile.write(again)
                time.sleep(0.05)

    expected = pytest.raises(ModelError, match="does not answer within")
    with misbehaving_server(trickle) as server, expected:
        Client(server.url, timeouts=Timeouts(total_s=1.5)).models()


@pytest.mark.parametrize("content", [[1], "text", 3.5, True])
def test_an_answer_that_is_no_object_is_an_error(content: object) -> None:
    expected = pytest.raises(ModelError, match="something else than a JSON object")
    with misbehaving_server(answers(200, content)) as server, expected:
        Client(server.url).models()


def test_the_reason_of_a_stranger_cannot_steer_a_terminal() -> None:
    expected = pytest.raises(ModelError, match=r"answers 500: \[2Jgone now; is it")
    with misbehaving_server(answers(500, {"detail": "\x1b[2Jgone\n\rnow"})) as server, expected:
        Client(server.url).models()


def test_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ModelError, match=r"is not there: .*SSH-2\.0"):
            Client(url, retries=FAST).models()
        thread.join()


def test_an_upload_is_sent_anew_and_names_no_subject(tmp_path: Path) -> None:
    image = tmp_path / "sub-Jane_Doe_T1w.nii.gz"
    image.write_bytes(bytes(range(256)) * 5000)  # several pieces
    predictions = {"model_version": "1", "predictions": []}
    with misbehaving_server(reset, answers(503), answers(200, predictions)) as server:
        answer = Client(server.url, retries=FAST).predict(
            image, app="segment", parameters={"n": 2}, quantile=0.9, send="file"
        )
        first, *others = server.of("/predict")
    assert answer == predictions
    assert len(others) == 2
    assert {request.body for request in others} == {first.body}
    assert image.read_bytes() in first.body
    assert b"Jane" not in first.body
    fields = re.findall(rb'name="(\w+)"\r\n\r\n(.*)\r\n', first.body)
    assert fields == [(b"app", b"segment"), (b"parameters", b'{"n": 2}'), (b"quantile", b"0.9")]


def test_the_answer_to_an_upload_that_is_refused_early_is_read(tmp_path: Path) -> None:
    image = tmp_path / "large.nii"
    with image.open("wb") as file:
        file.truncate(50_000_000)
    body = b'{"detail": "at most 1 MB"}'
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    pong = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            for answer in (pong, refusal):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    if answer is refusal:
                        while connection.recv(1 << 20):  # it reads on, so that nothing is reset
                            pass

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RequestError, match="request refused: at most 1 MB"):
            Client(url, retries=FAST).predict(image, send="file")
        thread.join()


def test_an_upload_is_read_piece_by_piece(tmp_path: Path) -> None:
    image = tmp_path / "large.nii"
    with image.open("wb") as file:
        file.truncate(100_000_000)
    upload = Upload.of(image, {"app": "segment"})
    sizes = [len(part) for part in upload.parts()]
    assert max(sizes) <= 2**18
    assert sum(sizes) == int(upload.headers["Content-Length"])


def test_a_file_that_shrinks_while_it_is_sent_is_an_image_error(tmp_path: Path) -> None:
    image = tmp_path / "scan.nii"
    image.write_bytes(bytes(1000))
    upload = Upload.of(image, {})
    image.write_bytes(bytes(10))
    with pytest.raises(ImageError, match="has changed while it was sent"):
        list(upload.parts())
    with pytest.raises(ImageError, match="no such file"):
        Upload.of(tmp_path / "gone.nii", {})


def test_the_token_is_sent_and_never_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text("from-the-file-123\n")
    path.chmod(0o600)
    with misbehaving_server(*3 * [answers(200)], answers(401)) as server:
        Client(server.url, token=SECRET).models()
        monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(path))
        Client(server.url).models()
        assert not caplog.records
        path.chmod(0o644)
        Client(server.url).models()
        assert "others can read this token" in caplog.text
        monkeypatch.setenv("VOXCAST_TOKEN", "from-the-variable-123")
        client = Client(server.url)
        with pytest.raises(ModelError, match="refuses the token") as caught:
            client.models()
        sent = [request.headers["Authorization"] for request in server.of("/models")]
    assert sent == [
        f"Bearer {SECRET}", *2 * ["Bearer from-the-file-123"], "Bearer from-the-variable-123"
    ]  # fmt: skip
    told = f"{caught.value} {client!r} {caplog.text}"
    assert not [word for word in (SECRET, "from-the-file", "from-the-variable") if word in told]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "a\r\nX-Evil: 1", "ümlaut"])
def test_a_malformed_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigError, match="the token: empty, or with characters") as caught:
        Client("http://127.0.0.1:1", token=token)
    assert not token or token not in str(caught.value)


def test_a_token_leaves_the_machine_encrypted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://models.example.org", "http://localhost:5001", "http://[::1]:5001"):
        Client(url, token=SECRET)
    with pytest.raises(ConfigError, match=r"would go to http://models\.example\.org unencrypted"):
        Client("http://models.example.org", token=SECRET)
    Client("http://models.example.org", token=SECRET, plain_http_token=True)
    monkeypatch.setenv("VOXCAST_TOKEN_OVER_HTTP", "1")
    Client("http://models.example.org", token=SECRET)


def test_a_token_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="none: cannot be read: No such file"):
        Client("http://127.0.0.1:1")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(tmp_path / "bytes"))
    with pytest.raises(ConfigError, match="bytes: cannot be read: not text"):
        Client("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:5001", "not an HTTP address"),
        ("ftp://host", "not an HTTP address"),
        ("http://", "not an HTTP address"),
        ("http://host:port", "not an HTTP address"),
        ("http://ho st", "not an HTTP address"),
        ("http://host/?a=1", "must end with its path"),
        ("http://jane:secret@host", "has a name or a password in it; put a token into"),
    ],
)
def test_a_wrong_address_is_named(url: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_a_path_before_the_service_stays() -> None:
    with misbehaving_server() as server:
        Client(f"{server.url}/voxcast/").models()
        assert [request.path for request in server.received] == [
            "/voxcast/ping",
            "/voxcast/models",
        ]
    assert str(ServerAddress.parse("http://host:80/invocations")) == "http://host"


def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with misbehaving_server() as proxy, misbehaving_server() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        Client(server.url).models()
        assert not proxy.received
        Client("http://models.example.org:8000/a").models()
        assert [r.path for r in proxy.of("http://models.example.org:8000/a/models")]
        assert proxy.received[-1].headers["Host"] == "models.example.org:8000"
        monkeypatch.setenv("no_proxy", "example.org")
        assert ServerAddress.parse("http://models.example.org").proxy() is None


def test_waits_grow_and_spread() -> None:
    retries = Retries(base_s=1.0, longest_s=4.0)
    waits = [[retries.wait_s(failures) for _ in range(300)] for failures in (1, 2, 3, 4, 9)]
    for limit, drawn in zip((1, 2, 4, 4, 4), waits, strict=True):
        assert 0 <= min(drawn) < 0.2 * limit
        assert 0.8 * limit < max(drawn) <= limit
    assert 7 <= retries.wait_s(1, 7.0) <= 8


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0", 0, 0),
        ("12.5", 12.5, 12.5),
        ("-3", 0, 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0, 0),  # of RFC 9110
    ],
)
def test_retry_after_is_read(text: str, low: float, high: float) -> None:
    assert low <= retry_after_s(text) <= high


def test_retry_after_is_read_as_a_time() -> None:
    text = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3000 <= retry_after_s(text) <= 3601


@pytest.mark.parametrize("text", [None, "", "soon", "nan", "inf", "1e999"])
def test_a_retry_after_that_is_none_is_passed_over(text: str | None) -> None:
    assert retry_after_s(text) is None


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionRefusedError(), True),
        (RemoteDisconnected(""), True),
        (IncompleteRead(b""), True),
        (OSError(113, "No route to host"), True),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), True),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), False),
        (ssl.SSLEOFError(), True),
        (ssl.SSLCertVerificationError(), False),
        (BadStatusLine("SSH"), False),
        (TimeoutError(), False),
    ],
)
def test_what_may_pass_is_repeated(error: Exception, transient: bool) -> None:
    assert is_transient(error) == transient
