"""What the OpenAPI document allows is answered, what it does not is refused, never a 5xx."""

from pathlib import Path

import openapi_fuzz
from champions import register_champion
from model_server import free_port


def test_requests_made_from_the_document_never_fail_the_service(tmp_path: Path) -> None:
    register_champion(tmp_path, 20)
    (tmp_path / "params.yaml").touch()
    with openapi_fuzz.running_service(port := free_port(), tmp_path) as process:
        figures = openapi_fuzz.fuzz(port, examples=1, seed=1)
        assert process.poll() is None
    assert figures["requests"] > 300
    assert figures["server_errors"] == figures["without_answer"] == 0, figures
    assert not figures["failed_checks"], figures
    assert int(figures["status_by_operation"]["POST /predict"]["200"]) > 0
