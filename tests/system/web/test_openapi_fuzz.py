"""What the OpenAPI document allows is answered, what it does not is refused, never a 5xx."""

import collections
from pathlib import Path
from typing import Any

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from champions import HEADER_ROW
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.settings import Settings

CHECKS = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance,
]  # fmt: skip
# Texts and rows at random would be refused before anything is predicted.
KNOWN = {"app": ["segment", "register"], "parameters_json": ["{}"], "device": ["cpu"]}
ASKED = {"rows": [HEADER_ROW], "row": HEADER_ROW}


def narrowed(schema: Any) -> Any:
    """Return a document whose texts and questions are often those that the service knows."""
    if isinstance(schema, list):
        return [narrowed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    narrow = {name: narrowed(part) for name, part in schema.items()}
    properties = narrow.get("properties")
    if not isinstance(properties, dict):
        return narrow
    for name in KNOWN.keys() & properties.keys():
        properties[name] = {"anyOf": [{"enum": KNOWN[name]}, properties[name]]}
    right = {name: ASKED[name] for name in ASKED.keys() & properties.keys()}
    return {"anyOf": [{"const": {**right, "app": "segment"}}, narrow]} if right else narrow


def test_requests_made_from_the_document_never_fail_the_service(champion_project: Path) -> None:
    app = application(Settings(ModelStore.of(champion_project), champion_project))
    statuses: collections.Counter[tuple[str, int]] = collections.Counter()
    with TestClient(app, raise_server_exceptions=False) as client:
        document = schemathesis.openapi.from_dict(narrowed(client.get("/openapi.json").json()))
        for result in document.get_all_operations():
            operation = result.ok()

            @given(case=operation.as_strategy())
            @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
            def check(case: Case) -> None:
                words = case.as_transport_kwargs(base_url="http://testserver")
                body = words.pop("data", None)
                answer = client.request(**words, content=body)
                statuses[case.operation.label, answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            check()
    assert statuses.total() > 100
    assert statuses["POST /predict", 200] > 0
