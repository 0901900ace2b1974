"""Answers by one version of the model, while the champion changes or none is loaded."""

import asyncio
from dataclasses import replace
from pathlib import Path

from fastapi.testclient import TestClient
from starlette.requests import Request

from champions import HEADER_ROW
from voxcast.tracking.runs import tracking_uri
from voxcast.web.application import application
from voxcast.web.current_model import by_one_model
from voxcast.web.served_model import ServedModel
from voxcast.web.settings import Settings


def test_an_answer_is_computed_again_if_the_champion_changed_meanwhile(
    champion_project: Path,
) -> None:
    settings = Settings(tracking_uri(champion_project), champion_project)
    app = application(settings)
    first = ServedModel.champion(settings)
    second = replace(first, version="2")
    app.state.model = first
    asked: list[str] = []

    async def answer(served: ServedModel) -> list[str]:
        asked.append(served.version)
        await asyncio.sleep(0)
        app.state.model = second  # as the service does when the alias moves
        return [served.version, served.version]

    request = Request({"type": "http", "app": app})
    assert asyncio.run(by_one_model(request, answer)) == ["2", "2"]
    assert asked == ["1", "2"]


def test_while_no_model_is_loaded_clients_are_told_to_come_back(champion_project: Path) -> None:
    app = application(Settings(tracking_uri(champion_project), champion_project))
    with TestClient(app) as service:
        app.state.model = None
        for path in ("/recommend", "/requests"):
            answer = service.post(path, json={"row": HEADER_ROW, "app": "segment"})
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
        assert service.get("/history").status_code == 503
        assert service.get("/sites").status_code == 200
