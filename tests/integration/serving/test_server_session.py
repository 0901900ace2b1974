"""Questions to a server that resets, is late, busy or silent, or answers something else."""

import logging
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from misbehaving_server import (
    Behaviour,
    answers,
    close,
    misbehaving_server,
    reset,
    slow,
    truncated,
    truncated_chunks,
)
from model_server import free_port
from voxcast import Client
from voxcast.errors import ConfigError, ImageError, ModelError, RequestError
from voxcast.serving import client as module

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
        with Client(server.url, attempts=4) as client:
            assert client.models() == {"name": "voxcast"}
        assert len(server.of("/models")) == 3


def test_it_is_given_up_after_the_last_attempt() -> None:
    with misbehaving_server(*4 * [answers(503, {"detail": "no model is loaded"})]) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url, attempts=4).models()
        assert len(server.of("/models")) == 4
    expected = "the server answers 503: no model is loaded, asked 4 times; ask later"
    assert str(caught.value) == f"{server.url}: {expected}"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 422, 500])
def test_a_refusal_is_not_repeated(status: int) -> None:
    with misbehaving_server(answers(status, {"detail": "cpus: too many"})) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url, attempts=4).models()
        assert len(server.of("/models")) == 1
    assert isinstance(caught.value, RequestError) == (status in (400, 413, 415, 422))
    expected = {
        401: "the server wants a token; set VOXCAST_TOKEN or VOXCAST_TOKEN_FILE",
        404: "the server answers 404: cpus: too many; is it the server of `voxcast serve`?",
        500: "the server answers 500: cpus: too many; is it the server of `voxcast serve`?",
    }
    assert str(caught.value) == f"{server.url}: {expected.get(status, 'cpus: too many')}"


@pytest.mark.parametrize(
    ("detail", "refused"), [("path: no such image", True), ("Not Found", False)]
)
def test_what_a_question_names_may_be_missing(detail: str, refused: bool) -> None:
    missing = answers(404, {"detail": detail}, Content_Type="application/problem+json")
    with misbehaving_server(missing) as server, pytest.raises(ModelError, match=detail) as caught:
        Client(server.url).described("/shared/gone.nii")
    assert isinstance(caught.value, RequestError) == refused


def test_the_server_says_when_to_ask_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    busy = answers(503, {"detail": "loading"}, Retry_After="1")
    with misbehaving_server(busy) as server:
        Client(server.url, attempts=4).models()
        assert len(server.of("/models")) == 2
    assert re.search(r"answers 503: loading; asked again in 1\.\d+ s", caplog.text)


def test_a_wait_beyond_the_total_is_not_begun() -> None:
    busy = answers(503, {"detail": "maintenance"}, Retry_After="3600")
    with misbehaving_server(busy) as server:
        with pytest.raises(ModelError, match="answers 503: maintenance; ask later"):
            Client(server.url, attempts=4).models()
        assert len(server.of("/models")) == 1


@pytest.mark.parametrize(
    ("behaviour", "timeouts", "limit"),
    [
        (slow(5), {"timeout_s": 0.2}, "0.200 s"),
    ],
    ids=["silent"],
)
def test_a_late_answer_is_not_asked_for_again(
    behaviour: Behaviour, timeouts: dict[str, float], limit: str
) -> None:
    with misbehaving_server(behaviour) as server:
        with pytest.raises(ModelError, match=f"does not answer within {limit}; see its log"):
            Client(server.url, attempts=4, **timeouts).models()
        assert len(server.of("/models")) == 1


def test_the_health_of_a_server_that_never_answers_is_soon_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HEALTH_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ModelError, match=r"does not answer within 0\.200 s; see its log"):
            Client(url).health()


def test_an_unreachable_server_is_a_model_error() -> None:
    port = free_port()
    with pytest.raises(ModelError, match="Connection refused, asked 4 times; is it running"):
        Client(f"http://127.0.0.1:{port}", attempts=4).models()
    with pytest.raises(ModelError, match="Connection refused; is it running"):
        Client(f"http://127.0.0.1:{port}").health()  # which is not repeated


def test_an_open_connection_is_used_again_and_a_stale_one_replaced() -> None:
    with misbehaving_server() as server, Client(server.url, attempts=2) as client:
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
            Client(server.url, token=SECRET, attempts=4).models()
        assert not other.received


@pytest.mark.parametrize("content", [[1], "text", 3.5, True])
def test_an_answer_that_is_no_object_is_an_error(content: object) -> None:
    expected = pytest.raises(ModelError, match="something else than a JSON object")
    with misbehaving_server(answers(200, content)) as server, expected:
        Client(server.url).models()


def test_the_reason_of_a_stranger_cannot_steer_a_terminal() -> None:
    expected = pytest.raises(ModelError, match=r"answers 500: \[2Jgone now; is it")
    with misbehaving_server(answers(500, {"detail": "\x1b[2Jgone\n\rnow"})) as server, expected:
        Client(server.url).models()


def test_an_answer_cannot_steer_a_terminal() -> None:
    expected = pytest.raises(ModelError, match="answers with unprintable characters")
    with misbehaving_server(answers(200, {"name": "\x1b[2Jgone"})) as server, expected:
        Client(server.url).models()
    with misbehaving_server(answers(200, {"script": "#!/bin/bash\n\tsrun"})) as server:
        assert Client(server.url).models()["script"].endswith("srun")


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
        with pytest.raises(ModelError, match="is not there: Server disconnected"):
            Client(url, attempts=1).models()
        thread.join()


def test_an_upload_is_sent_anew_and_names_no_subject(tmp_path: Path) -> None:
    image = tmp_path / "sub-Jane_Doe_T1w.nii.gz"
    image.write_bytes(bytes(range(256)) * 5000)  # several pieces
    predictions = {"model_version": "1", "predictions": []}
    with misbehaving_server(reset, answers(503), answers(200, predictions)) as server:
        answer = Client(server.url, attempts=4).upload(image, app="segment")
        sent = server.of("/images?app=segment")
    assert answer == predictions
    assert [request.body == image.read_bytes() for request in sent] == 3 * [True]
    assert not [request for request in sent if "Jane" in str(request.headers)]


def test_the_answer_to_an_upload_that_is_refused_early_is_read(tmp_path: Path) -> None:
    image = tmp_path / "large.nii"
    with image.open("wb") as file:
        file.truncate(50_000_000)
    body = b'{"detail": "at most 1 MB"}'
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(refusal)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):  # it reads on, so that nothing is reset
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RequestError, match="at most 1 MB"):
            Client(url, attempts=4).upload(image)
        thread.join()


def test_an_upload_is_read_piece_by_piece(tmp_path: Path) -> None:
    image = tmp_path / "large.nii"
    with image.open("wb") as file:
        file.truncate(300_000_000)
    with misbehaving_server(answers(413, {"detail": "too large"})) as server:
        code = (
            "import resource, sys, voxcast\n"
            "from voxcast.errors import RequestError\n"
            "client = voxcast.Client(sys.argv[1])\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "try:\n"
            "    client.upload(sys.argv[2])\n"
            "except RequestError:\n"
            "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        )
        command = [sys.executable, "-c", code, server.url, str(image)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 1024 * int(answer.stdout) < 100_000_000
    with pytest.raises(ImageError, match="no such file"):
        Client("http://127.0.0.1:1").upload(tmp_path / "gone.nii")


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
        assert not [record for record in caplog.records if record.name.startswith("voxcast")]
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
        assert [request.path for request in server.received] == ["/voxcast/models"]
    assert Client("http://host:80/invocations").address == "http://host"


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
        with pytest.raises(ModelError, match="is not there"):
            Client("http://models.example.org:8000/a", attempts=1).models()
