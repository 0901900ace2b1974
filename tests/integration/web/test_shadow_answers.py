"""A challenger in shadow: asked what the champion was asked, logged, and never returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from mlflow import MlflowClient

from champions import HEADER_ROW, register_champion
from voxcast.serving.registry.lookup import CHALLENGER, CHAMPION, MODEL_NAME
from voxcast.serving.shadow_log import ShadowLog, shadow_log
from voxcast.tracking.runs import tracking_uri
from voxcast.web.application import application
from voxcast.web.settings import Settings
from voxcast.web.shadow import RowAnswers, Shadow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with champion 1 and, in shadow, version 2, which has one application less."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_SHADOW_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    register_champion(tmp_path, 20, "register", "segment")
    register_champion(tmp_path, 26, "segment")
    client = MlflowClient(tracking_uri(tmp_path), tracking_uri(tmp_path))
    client.set_registered_model_alias(MODEL_NAME, CHAMPION, "1")
    client.set_registered_model_alias(MODEL_NAME, CHALLENGER, "2")
    return tmp_path


def test_answers_are_of_the_champion_and_both_are_logged(project: Path) -> None:
    with TestClient(application(Settings(tracking_uri(project), project))) as client:
        assert client.get("/health").json()["challenger_version"] == "2"
        rows = [{**HEADER_ROW, "app": app, "cpus": 2} for app in ("segment", "register")]
        answers = [client.post("/predict/batch", json={"rows": [row]}).json() for row in rows]
    assert {answer["model_version"] for answer in answers} == {"1"}
    logged, unreadable = shadow_log(project).answers()
    assert unreadable == 0
    (answer,) = logged  # the challenger knows one of both applications
    assert answer.versions == ("1", "2")
    assert (answer.app, answer.cpus) == ("segment", 2)
    champion, challenger = answer.quantiles["cpu_s"]
    assert champion[1] == answers[0]["predictions"][0]["cpu_s_median"]
    assert champion != challenger


def test_a_challenger_that_is_slow_does_not_hold_up_the_champion(project: Path) -> None:
    app = application(Settings(tracking_uri(project), project))
    with TestClient(app):
        switch = app.state.switch
        switch.look()
        shadow = Shadow(lambda: switch.challenger, ShadowLog(project / "log.jsonl"))
        row = {**HEADER_ROW, "app": "segment"}
        row_answers = RowAnswers(switch.champion, [row], [{}], 0.95)
        for _ in range(500):  # its thread was not started
            shadow.after_answer(row_answers)
        assert shadow.skipped == 300
