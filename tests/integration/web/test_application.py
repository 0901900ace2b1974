"""What every answer of the service has, and MLflow's protocol; in this process."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from champions import HEADER_ROW
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.web.application import application
from voxcast.web.guards import MAX_BODY_BYTES
from voxcast.web.observation import JsonFormatter
from voxcast.web.questions import MAX_ROWS
from voxcast.web.server import Settings

ROW = {**HEADER_ROW, "app": "segment"}
NESTED = "[" * 900 + "]" * 900  # which the parser takes, and `repr` does not
TOKEN = "a-token-that-is-long-enough"  # noqa: S105


def test_the_service_is_ready_with_the_champion(service: TestClient) -> None:
    health = service.get("/health").json()
    assert health["ready"] is True
    assert health["model_version"] == "1"
    assert health["refused"] == []


def test_every_answer_is_closed_to_other_sites_and_has_an_id(service: TestClient) -> None:
    for path in ("/health", "/nothing"):
        answer = service.get(path, headers={"Origin": "https://evil.example"})
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert len(answer.headers["x-request-id"]) == 16
    stated = service.get("/health", headers={"X-Request-ID": "job-7.a"})
    assert stated.headers["x-request-id"] == "job-7.a"
    hostile = service.get("/health", headers={"X-Request-ID": "<script>" + "a" * 100})
    assert len(hostile.headers["x-request-id"]) == 16


def test_rows_are_answered_in_order_as_in_this_process(
    service: TestClient, champion_project: Path
) -> None:
    rows = [{**ROW, "cpus": 1.0 + n % 2, "file_size_bytes": 3e5 + n} for n in range(300)]
    expected = PredictionService.of_project(champion_project).predict(rows, 0.9)
    answer = service.post("/predict", json={"rows": rows, "quantile": 0.9})
    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"] == json.loads(json.dumps(expected))
    split = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
    for question in ({"dataframe_records": rows}, {"dataframe_split": split}):
        answer = service.post("/invocations", json={**question, "params": {"quantile": 0.9}})
        assert answer.json()["predictions"] == json.loads(json.dumps(expected))


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        ("[" * 100_000, "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"dataframe_records": [{"shape_i": ' + "9" * 5_000 + "}]}", "not valid JSON"),
        ({"dataframe_records": [ROW], "params": {"quantil": 0.99}}, "quantil: unknown"),
        ({"dataframe_records": [ROW], "params": {"quantile": None}}, "not None"),
        ({"dataframe_records": [ROW], "params": {"quantile": 2}}, "quantile: must be below 1"),
        ({"dataframe_records": [{**ROW, "shape_i": "NaN"}]}, "row 0: shape_i: must be finite"),
        ({"dataframe_records": [{**ROW, "shape_i": "x"}]}, "shape_i: must be a number, not 'x'"),
        ({"dataframe_records": [{**ROW, "shape_i": None}]}, "shape_i: is missing"),
        (
            {"dataframe_records": [ROW, {**ROW, "shape_i": 0}]},
            "row 1: shape_i: must be at least 1",
        ),
        ({"dataframe_records": [{**ROW, "volume": "é"}]}, "volume: is not base64"),
        (
            json.dumps({"dataframe_records": [{**ROW, "cpus": json.loads(NESTED)}]}),
            "number, not [[",
        ),
        (
            f'{{"dataframe_records": [{{}}], "params": {{"explain": {NESTED}}}}}',
            "true or false, not [[",
        ),
        ({"dataframe_records": []}, "dataframe_records"),
        ({"dataframe_records": [ROW], "dataframe_split": {"columns": [], "data": []}}, "either"),
        ({"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}, "as many values"),
        ({"instances": [1]}, "instances: unknown field"),
        ("[]", "must be an object"),
    ],
)
def test_a_wrong_invocation_is_refused_with_its_reason(
    service: TestClient, question: Any, problem: str
) -> None:
    body = question if isinstance(question, str) else json.dumps(question)
    answer = service.post(
        "/invocations", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    content = answer.json()
    assert problem in content["message"]
    assert content["detail"] == content["message"]
    assert len(answer.text) < 3_000


@pytest.mark.parametrize(
    ("question", "status", "problem"),
    [
        ({"rows": []}, 422, "rows: "),
        ({"rows": [ROW], "quantile": 1.5}, 422, "quantile: "),
        ({"rows": [ROW] * (MAX_ROWS + 1)}, 422, "rows: "),
        ({"rows": [ROW, {**ROW, "app": "nothing"}]}, 400, "row 1: "),
        ({"rows": [{**ROW, "cpus": True}]}, 400, "cpus: must be a number, not True"),
        ({"rows": [ROW] * 501, "explain": True}, 400, "explain: at most 500"),
    ],
)
def test_wrong_rows_are_refused_with_their_reason(
    service: TestClient, question: dict[str, Any], status: int, problem: str
) -> None:
    answer = service.post("/predict", json=question)
    assert answer.status_code == status
    assert problem in answer.json()["detail"]
    assert answer.headers["content-type"] == "application/problem+json"


def test_bodies_are_limited_by_their_kind(service: TestClient) -> None:
    def parts(size: int) -> Any:
        yield from (b" " * 2**20 for _ in range(size // 2**20 + 1))

    for content in (b" " * (MAX_BODY_BYTES + 1), parts(MAX_BODY_BYTES)):
        refused = service.post("/predict", content=content)
        assert refused.status_code == 413
        assert "fewer rows" in refused.json()["detail"]
        assert refused.headers["content-type"] == "application/problem+json"
    assert service.post("/predict", content=parts(MAX_BODY_BYTES // 2)).status_code == 422
    assert service.post("/images", content=parts(MAX_BODY_BYTES)).status_code == 400


def test_only_json_is_an_invocation(service: TestClient) -> None:
    answer = service.post("/invocations", content="a,b", headers={"Content-Type": "text/csv"})
    assert answer.status_code == 415
    assert service.get("/invocations").status_code == 405
    assert service.get("/ping").status_code == 200
    assert service.get("/version").text.count(".") == 2


def test_metrics_count_answers_by_route_and_never_by_what_a_client_chose(
    service: TestClient,
) -> None:
    service.post("/predict", json={"rows": [ROW] * 3})
    service.get("/a-path-of-a-client")
    text = service.get("/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    counts = {
        (s.labels["route"], s.labels["status"]): s.value
        for s in samples
        if s.name == "voxcast_requests_total"
    }
    assert counts["/predict", "200"] >= 1
    assert counts["unmatched", "404"] >= 1
    assert "a-path-of-a-client" not in text
    values = {s.name: s.value for s in samples if not s.labels}
    assert values["voxcast_requests_in_flight"] == 1  # this one
    assert values["voxcast_batch_rows_sum"] >= 3
    assert values["process_resident_memory_bytes"] > 1e7
    assert [s.labels for s in samples if s.name == "voxcast_model_info"] == [{"version": "1"}]


def test_a_token_is_needed_for_everything_but_health_and_page(champion_project: Path) -> None:
    settings = Settings(ModelStore.of(champion_project), champion_project, token=TOKEN)
    assert TOKEN not in repr(settings)
    with TestClient(application(settings)) as client:
        for path in ("/health", "/ping"):
            assert client.get(path).status_code == 200
        for path in ("/models", "/metrics", "/version", "/history", "/sites", "/images?path=x"):
            refused = client.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/", "/page/index.html"):
            assert client.get(path).status_code in (200, 404)
        wrong = (
            "",
            TOKEN,
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            "Bearer é",
        )
        for header in wrong:
            answer = client.get("/models", headers={"Authorization": header.encode()})
            assert answer.status_code == 401
        for header in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            assert client.get("/models", headers={"Authorization": header}).status_code == 200


def test_a_page_of_another_site_cannot_ask_by_a_name_of_its_own(champion_project: Path) -> None:
    names = ("localhost", "127.0.0.1", "[::1]")
    settings = Settings(ModelStore.of(champion_project), champion_project, hosts=names)
    with TestClient(application(settings)) as client:
        for name in ("localhost", "LOCALHOST:5001", "127.0.0.1:80", "[::1]:5001"):
            assert client.get("/models", headers={"Host": name}).status_code == 200
        for name in ("evil.example", "evil.example:5001", "localhost.evil.example", "[::2]", ""):
            assert client.get("/health", headers={"Host": name}).status_code == 400


def test_a_line_of_the_log_tells_nothing_of_the_question(
    service: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "voxcast.web.observation"):
        service.post(
            "/predict?secret=query", json={"rows": [ROW], "host": "a-host"},
            headers={"Authorization": "Bearer secret-token", "X-Request-ID": "id-1"},
        )  # fmt: skip
    (record,) = caplog.records
    line = JsonFormatter().format(record)
    content = json.loads(line)
    assert content["request_id"] == "id-1"
    assert content["route"] == "/predict"
    assert content["status"] == 200
    assert content["model_version"] == "1"
    assert content["duration_ms"] > 0
    assert not [text for text in ("secret", "a-host", "shape") if text in line]


def test_before_there_is_a_model_questions_are_put_off(champion_project: Path) -> None:
    app = application(Settings(ModelStore.of(champion_project)))
    with TestClient(app) as client:
        app.state.switch.champion = None
        answer = client.post("/predict", json={"rows": [HEADER_ROW]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 503
        assert client.get("/ping").status_code == 200
        assert client.get("/metrics").status_code == 200
