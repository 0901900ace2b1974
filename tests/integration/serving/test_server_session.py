"""Questions to a server that resets, is late, busy or silent, or answers something else."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from champions import HEADER_ROW
from model_server import free_port
from voxcast.errors import ConfigError, ModelError, RequestError
from voxcast.serving import client as module
from voxcast.serving.client import PART_BYTES, PART_ROWS, Client, parts
from voxcast.serving.signature import OUTPUT_TYPES

URL, SECRET = "http://127.0.0.1:5001", "letters-and-123"
VALUES = {"string": "", "double": 1.0, "long": 1, "boolean": True}
PREDICTION = {name: VALUES[kind] for name, kind in OUTPUT_TYPES.items()}
MODELS = httpx.Response(200, json={"version": "1", "apps": {}})
NONSENSE = {
    "configurations": [{"device": "cpu", "cpus": 1, "gpus": 0}], "measured": [["cpu", 1, 0]],
    "coarse_points": 9**9, "network_points": 0, "characteristics": [], "host_classes": [],
    "parameters": {},
}  # fmt: skip

Answer = httpx.Response | httpx.TransportError
Asked = Callable[..., tuple[Client, list[httpx.Request]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return a function that makes a client of given answers, and the list of its requests."""
    for name in ("VOXCAST_TOKEN", "VOXCAST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))

    def client_of(
        *answers: Answer, token: str | None = None
    ) -> tuple[Client, list[httpx.Request]]:
        left, requests = iter(answers), []

        def handle(request: httpx.Request) -> httpx.Response:
            requests.append(request)
            answer = next(left)
            if isinstance(answer, httpx.TransportError):
                raise answer
            return answer

        client = Client(URL)
        headers = client._http.headers
        client._http = httpx.Client(transport=httpx.MockTransport(handle), headers=headers)
        return client, requests

    return client_of


def refusal(client: Client) -> ModelError:
    with pytest.raises(ModelError) as caught:
        client.models()
    return caught.value


@pytest.mark.parametrize(
    "busy",
    [
        httpx.ReadError("reset"), httpx.RemoteProtocolError("incomplete"), httpx.ConnectError(""),
        httpx.Response(503), httpx.Response(429), httpx.Response(502),
    ],
    ids=repr,
)  # fmt: skip
def test_a_broken_or_busy_exchange_is_repeated(asked: Asked, busy: Answer) -> None:
    client, requests = asked(busy, busy, MODELS)
    assert client.version == "1"
    assert len(requests) == 3


def test_it_is_given_up_after_the_last_attempt(asked: Asked) -> None:
    busy = httpx.Response(503, json={"detail": "no model is loaded"})
    client, requests = asked(*module.ATTEMPTS * [busy])
    assert "answers 503: no model is loaded; ask later" in str(refusal(client))
    assert len(requests) == module.ATTEMPTS


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        *((httpx.Response(status, json={"detail": "cpus: too many"}), "cpus: too many")
          for status in (400, 413, 415, 422)),
        (httpx.Response(401), "wants a token; set VOXCAST_TOKEN or VOXCAST_TOKEN_FILE"),
        (httpx.Response(404, json={"detail": "no"}), "answers 404: no; is it the server of `vox"),
        (httpx.Response(307, headers={"Location": "http://evil"}), "answers 307: http://evil"),
        (httpx.Response(200, json=[1]), "something else than a JSON object"),
        (httpx.Response(200, content=b"[" * 100_000), "something else than a JSON object"),
        (httpx.Response(500, json={"detail": "\x1b[2Jgone\n\rnow"}), "500: [2Jgone now; is it"),
        (httpx.Response(200, json={"name": "\x1b[2J"}), "answers with unprintable characters"),
        (httpx.Response(200, json={"name": "a"}), "answers in another form: apps, version"),
        (httpx.Response(200, json={"version": "1", "apps": {"a": NONSENSE}}),
         "answers in another form: apps.a.coarse_points"),
        (httpx.ReadTimeout(""), "does not answer within"),
    ],
)  # fmt: skip
def test_a_refusal_is_told_in_words_and_not_repeated(
    asked: Asked, answer: Answer, message: str
) -> None:
    client, requests = asked(answer)
    error = refusal(client)
    assert message in str(error)
    assert isinstance(error, RequestError) == ("too many" in message)
    assert len(requests) == 1


def test_an_unreachable_server_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="Connection refused; is it running"):
        Client(f"http://127.0.0.1:{free_port()}").models()


def test_the_token_is_sent_and_never_told(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text("from-the-file-123\n")
    monkeypatch.setenv("VOXCAST_TOKEN_FILE", str(path))
    client, requests = asked(httpx.Response(401))
    error = refusal(client)
    assert "refuses the token" in str(error)
    assert requests[0].headers["Authorization"] == "Bearer from-the-file-123"
    assert "from-the-file-123" not in f"{error} {caplog.text}"
    monkeypatch.setenv("VOXCAST_TOKEN", "from-the-variable-123")
    client, requests = asked(MODELS)
    client.models()
    assert requests[0].headers["Authorization"] == "Bearer from-the-variable-123"


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "a\r\nX-Evil: 1", "ümlaut"])
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="the token: empty, or with characters") as caught:
        Client(URL, token)
    assert not token or token not in str(caught.value)


def test_a_token_leaves_the_machine_encrypted_only() -> None:
    for url in ("https://models.example.org", "http://localhost:5001", "http://[::1]:5001"):
        Client(url, SECRET)
    with pytest.raises(ConfigError, match=r"would go to http://models\.example\.org unencrypted"):
        Client("http://models.example.org", SECRET)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        *((url, "not an HTTP address") for url in (
            "127.0.0.1:5001", "ftp://host", "http://", "http://host:port", "http://ho st",
            "http://host/?a=1")),
        ("http://jane:secret@host", "has a name or a password in it; put a token into"),
    ],
)  # fmt: skip
def test_a_wrong_address_is_named(url: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


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


def test_a_refused_row_has_its_number_among_all_rows(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", 1)
    refused = httpx.Response(400, json={"detail": "row 0: dtype: is missing"})
    client, _ = asked(httpx.Response(200, json={"predictions": [PREDICTION]}), refused)
    with pytest.raises(RequestError, match="row 1: dtype: is missing"):
        client.predict([HEADER_ROW, {}])


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([PREDICTION], "has no prediction for each row"),
        (2 * [{"runtime_s_median": 1.0}], "answers in another form: "),
    ],
)
def test_predictions_of_another_form_are_an_error(
    asked: Asked, predictions: object, message: str
) -> None:
    client, _ = asked(httpx.Response(200, json={"predictions": predictions}))
    with pytest.raises(ModelError, match=message):
        client.predict([HEADER_ROW, HEADER_ROW])
