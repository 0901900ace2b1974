"""What the OpenAPI document allows is answered, what it does not is refused, never a 5xx."""

import collections
from pathlib import Path

import httpx
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from champions import HEADER_ROW
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.server import Settings

CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance,
]  # fmt: skip
RIGHT = {  # which is hardly ever made at random
    "/predict": {"rows": [HEADER_ROW], "app": "segment", "configurations": "all"},
    "/recommend": {"row": HEADER_ROW, "app": "segment"},
    "/requests": {"row": HEADER_ROW, "app": "segment"},
}


def test_requests_made_from_the_document_never_fail_the_service(champion_project: Path) -> None:
    app = application(Settings(ModelStore.of(champion_project), champion_project))
    asked: collections.Counter[str] = collections.Counter()
    with TestClient(app, raise_server_exceptions=False) as client:
        document = schemathesis.openapi.from_dict(client.get("/openapi.json").json())

        def answer_of(case: Case) -> httpx.Response:
            words = case.as_transport_kwargs(base_url="http://testserver")
            body = words.pop("data", None)
            answer = client.request(**words, content=body)
            asked[case.operation.label] += 1
            case.validate_response(answer, checks=CHECKS)
            return answer

        for path, question in RIGHT.items():
            case = document[path]["POST"].Case(body=question, media_type="application/json")
            assert answer_of(case).status_code == 200
        for result in document.get_all_operations():
            operation = result.ok()

            @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy())
            def check(case: Case) -> None:
                answer_of(case)

            check()
    assert asked["POST /predict"] > 10
