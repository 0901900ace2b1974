"""Questions to a server that resets, is late, busy or silent, or answers something else."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from champions import HEADER_ROW
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
from voxcast.errors import ConfigError, ModelError, RequestError
from voxcast.serving import client as module
from voxcast.serving.client import PART_BYTES, PART_ROWS, Client, parts
from voxcast.serving.signature import OUTPUT_TYPES

SECRET = "letters-and-123"  # noqa: S105
MODELS = {"version": "1", "apps": {}}
VALUES = {"string": "", "double": 1.0, "long": 1, "boolean": True}
PREDICTION = {name: VALUES[kind] for name, kind in OUTPUT_TYPES.items()}


@pytest.fixture(autouse=True)
def impatient_without_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VOXCAST_TOKEN", "VOXCAST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.mark.parametrize(
    "behaviour",
    [reset, close, truncated, truncated_chunks, answers(503), answers(429), answers(502)],
    ids=["reset", "close", "truncated", "truncated chunks", "503", "429", "502"],
)
def test_a_broken_or_busy_exchange_is_repeated(behaviour: Behaviour) -> None:
    with misbehaving_server(behaviour, behaviour, answers(200, MODELS)) as server:
        assert Client(server.url).version == "1"
        assert len(server.of("/models")) == 3


@pytest.mark.parametrize(
    ("retry_after", "asked"), [("1", module.ATTEMPTS), ("3600", 1)], ids=["soon", "much later"]
)
def test_it_is_given_up_after_the_last_attempt(retry_after: str, asked: int) -> None:
    busy = answers(503, {"detail": "no model is loaded"}, Retry_After=retry_after)
    with misbehaving_server(*module.ATTEMPTS * [busy]) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url).models()
        assert len(server.of("/models")) == asked
    expected = "the server answers 503: no model is loaded; ask later"
    assert str(caught.value) == f"{server.url}: {expected}"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 415, 422, 500])
def test_a_refusal_is_not_repeated(status: int) -> None:
    with misbehaving_server(answers(status, {"detail": "cpus: too many"})) as server:
        with pytest.raises(ModelError) as caught:
            Client(server.url).models()
        assert len(server.of("/models")) == 1
    assert isinstance(caught.value, RequestError) == (status in (400, 413, 415, 422))
    expected = {
        401: "the server wants a token; set VOXCAST_TOKEN or VOXCAST_TOKEN_FILE",
        404: "the server answers 404: cpus: too many; is it the server of `voxcast serve`?",
        500: "the server answers 500: cpus: too many; is it the server of `voxcast serve`?",
    }
    assert str(caught.value) == f"{server.url}: {expected.get(status, 'cpus: too many')}"


def test_a_late_answer_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    with misbehaving_server(slow(5)) as server:
        with pytest.raises(ModelError, match=r"does not answer within 0\.200 s; see its log"):
            Client(server.url).models()
        assert len(server.of("/models")) == 1


def test_an_unreachable_server_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="Connection refused; is it running"):
        Client(f"http://127.0.0.1:{free_port()}").models()


def test_a_redirection_is_not_followed() -> None:
    with misbehaving_server() as other:
        elsewhere = answers(307, Location=f"{other.url}/models")
        expected = pytest.raises(ModelError, match="answers 307: http://127")
        with misbehaving_server(elsewhere) as server, expected:
            Client(server.url, SECRET).models()
        assert not other.received


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (answers(200, [1]), "something else than a JSON object"),
        (answers(500, {"detail": "\x1b[2Jgone\n\rnow"}), r"answers 500: \[2Jgone now; is it"),
        (answers(200, {"name": "\x1b[2Jgone"}), "answers with unprintable characters"),
        (answers(200, {"name": "voxcast"}), "answers in another form: apps, version"),
    ],
)
def test_a_stranger_is_named_and_cannot_steer_a_terminal(answer: Behaviour, message: str) -> None:
    with misbehaving_server(answer) as server, pytest.raises(ModelError, match=message):
        Client(server.url).models()


def test_the_token_is_sent_and_never_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text("from-the-file-123\n")
    with misbehaving_server(*2 * [answers(200, MODELS)], answers(401)) as server:
        Client(server.url, SECRET).models()
        monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(path))
        Client(server.url).models()
        monkeypatch.setenv("VOXCAST_TOKEN", "from-the-variable-123")
        with pytest.raises(ModelError, match="refuses the token") as caught:
            Client(server.url).models()
        sent = [request.headers["Authorization"] for request in server.of("/models")]
    tokens = [SECRET, "from-the-file-123", "from-the-variable-123"]
    assert sent == [f"Bearer {token}" for token in tokens]
    assert not [token for token in tokens if token in f"{caught.value} {caplog.text}"]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "a\r\nX-Evil: 1", "ümlaut"])
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="the token: empty, or with characters") as caught:
        Client("http://127.0.0.1:1", token)
    assert not token or token not in str(caught.value)


def test_a_token_leaves_the_machine_encrypted_only() -> None:
    for url in ("https://models.example.org", "http://localhost:5001", "http://[::1]:5001"):
        Client(url, SECRET)
    with pytest.raises(ConfigError, match=r"would go to http://models\.example\.org unencrypted"):
        Client("http://models.example.org", SECRET)


def test_a_token_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, reason in (("none", "No such file"), ("bytes", "not text")):
        monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(tmp_path / name))
        with pytest.raises(ConfigError, match=f"{name}: cannot be read: {reason}"):
            Client("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:5001", "not an HTTP address"),
        ("ftp://host", "not an HTTP address"),
        ("http://", "not an HTTP address"),
        ("http://host:port", "not an HTTP address"),
        ("http://ho st", "not an HTTP address"),
        ("http://host/?a=1", "not an HTTP address"),
        ("http://jane:secret@host", "has a name or a password in it; put a token into"),
    ],
)
def test_a_wrong_address_is_named(url: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxied = answers(200, MODELS)
    with misbehaving_server(proxied) as proxy, misbehaving_server(proxied) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        Client(f"{server.url}/voxcast/").models()
        assert [request.path for request in server.received] == ["/voxcast/models"]
        assert not proxy.received
        Client("http://models.example.org:8000/a").models()
        assert [r.path for r in proxy.of("http://models.example.org:8000/a/models")]


@pytest.mark.parametrize(
    ("count", "letters", "sizes"),
    [
        (0, 0, [0]),  # which the server refuses
        (PART_ROWS + 1, 0, [PART_ROWS, 1]),
        (5, PART_BYTES // 2 - 100, [2, 2, 1]),
        (3, 2 * PART_BYTES, [1, 1, 1]),  # each of which the server may refuse
    ],
)
def test_parts_stay_within_what_a_server_receives(
    count: int, letters: int, sizes: list[int]
) -> None:
    rows = [{"n": n, "volume": letters * "A"} for n in range(count)]
    made = list(parts(rows))
    assert [len(part) for part in made] == sizes
    assert [row["n"] for part in made for row in part] == list(range(count))


def test_a_refused_row_has_its_number_among_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 1)
    refusal = answers(400, {"message": "row 0: dtype: is missing"})
    expected = pytest.raises(RequestError, match="row 1: dtype: is missing")
    right = answers(200, {"predictions": [PREDICTION]})
    with misbehaving_server(right, refusal) as server, expected:
        Client(server.url).predict([HEADER_ROW, {}])


def test_rows_are_asked_about_in_the_protocol_of_mlflow() -> None:
    with misbehaving_server(answers(200, {"predictions": [PREDICTION]})) as server:
        answer = Client(server.url).predict([{"volume": b"\x00\xff"}], 0.9, explain=True)
        (request,) = server.received
    assert answer == [PREDICTION]
    assert request.path == "/invocations"
    params = {"quantile": 0.9, "explain": True}
    content = {"dataframe_records": [{"volume": "AP8="}], "params": params}
    assert json.loads(request.body) == content


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([PREDICTION], "has no prediction for each row"),
        (2 * [{"runtime_s_median": 1.0}], "answers in another form: "),
        (2 * [PREDICTION | {"app": "\x1b[2J"}], "answers with unprintable characters"),
    ],
)
def test_predictions_of_another_form_are_an_error(predictions: object, message: str) -> None:
    expected = pytest.raises(ModelError, match=message)
    answer = answers(200, {"predictions": predictions})
    with misbehaving_server(answer) as server, expected:
        Client(server.url).predict([HEADER_ROW, HEADER_ROW])


LISTED = {
    "configurations": [{"device": "cpu", "cpus": 1, "gpus": 0}], "measured": [["cpu", 1, 0]],
    "coarse_points": 64, "network_points": 0, "characteristics": [], "host_classes": [],
    "parameters": {},
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"configurations": None},
        {"configurations": [{"device": "cpu", "cpus": "many", "gpus": 0}]},
        {"coarse_points": 10**6},
        {"network_points": 4000},
        {"parameters": "iterations"},
    ],
)
def test_a_server_that_lists_nonsense_is_refused(change: dict[str, object]) -> None:
    right, wrong = ({"version": "1", "apps": {"segment": facts}}
                    for facts in (LISTED, LISTED | change))  # fmt: skip
    with misbehaving_server(answers(200, right), answers(200, wrong)) as server:
        client = Client(server.url)
        assert client.champion().app == "segment"
        with pytest.raises(ModelError, match=r"answers in another form: apps\.segment\."):
            client.champion()
