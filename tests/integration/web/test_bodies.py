"""Bodies that would hold up the service, and what is wrong in them, in plain words."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from champions import HEADER_ROW
from voxcast.web.guards import MAX_BODY_BYTES

ROW = {**HEADER_ROW, "app": "segment"}


@pytest.mark.parametrize("path", ["/invocations", "/predict"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [' + b"{}," * 100_000 + b"{}]}",
        b'{"dataframe_records":[{"a":[' + b"[]," * 100_000 + b"[]]}]}",
        b'{"rows": [' + b"1," * 2_000_000 + b"1]}",
        b" " * (MAX_BODY_BYTES + 1),
    ],
)
def test_bodies_that_hold_too_much_are_not_parsed(
    service: TestClient, path: str, body: bytes
) -> None:
    answer = service.post(path, content=body)
    assert answer.status_code == 413
    assert "fewer rows" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("question", "status", "detail"),
    [
        ({"rows": [{"shape_i": 3}]}, 400,
         "row 0: dtype, file_size_bytes, shape_j, shape_k, spacing_i_mm, spacing_j_mm, "
         "spacing_k_mm: are missing"),
        ({"rows": [ROW, {**ROW, "shape_i": 0}]}, 400, "row 1: shape_i: must be at least 1, not 0"),
        ({"rows": [{**ROW, "shape_i": 0}], "configurations": "all"}, 400,
         "shape_i: must be at least 1, not 0"),
        ({"rows": [3]}, 422, "rows.0: must be an object"),
        ({}, 422, "rows: is missing"),
        ({"rows": [ROW], "apps": "segment"}, 422,
         "apps: unknown field; `GET /openapi.json` lists those of each question"),
        ({"rows": [ROW], "configurations": 3}, 422, "configurations: must be a list"),
        ({"rows": [ROW], "configurations": [{"cpus": 10**30}]}, 422,
         "configurations.0.cpus: is too large a number"),
        ({"rows": [ROW], "configurations": [{"gpus": 10**6}]}, 422,
         "configurations.0.gpus: must be at most 65536, not 1000000"),
        ({"rows": [ROW], "quantile": 1}, 422, "quantile: must be below 1, not 1"),
    ],
)  # fmt: skip
def test_a_question_is_refused_in_plain_words(
    service: TestClient, question: dict[str, Any], status: int, detail: str
) -> None:
    answer = service.post("/predict", json={"app": "segment", **question})
    assert (answer.status_code, answer.json()["detail"]) == (status, detail)


def test_a_reason_that_is_no_unicode_is_told(service: TestClient) -> None:
    row = {**ROW, "parameters_json": '{"\\ud800": 1}'}
    answer = service.post("/predict", json={"rows": [row], "app": "segment"})
    assert answer.status_code == 400
    assert "parameters_json: ?: unknown parameter" in answer.json()["detail"]


async def _ask(app: Any, path: str, kind: bytes, messages: list[dict[str, Any]]) -> list[Any]:
    """Send messages of ASGI to an application; return what it sends. More is not to be asked."""
    left, sent = iter(messages), []

    async def receive() -> dict[str, Any]:
        return next(left)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", kind)]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}  # fmt: skip
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/predict", "/invocations", "/images"])
def test_a_client_that_goes_away_is_no_error(service: TestClient, path: str, caplog: Any) -> None:
    messages = [{"type": "http.request", "body": b"{", "more_body": True},
                {"type": "http.disconnect"}]  # fmt: skip
    portal: Any = service.portal
    sent = portal.call(_ask, service.app, path, b"application/json", messages)
    assert sent[0]["status"] == 400
    assert not [record for record in caplog.records if record.exc_info]
