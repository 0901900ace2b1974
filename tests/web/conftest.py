"""A service in this process, on a champion of planted runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from champions import register_champion
from voxcast.tracking.runs import tracking_uri
from voxcast.web.application import application
from voxcast.web.settings import Settings


@pytest.fixture(scope="session")
def champion_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with a champion of two applications."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        register_champion(folder, 20, "register", "segment")
    (folder / "params.yaml").touch()
    return folder


@pytest.fixture(scope="module")
def service(champion_project: Path) -> Iterator[TestClient]:
    """A client of a service of that champion, in this process."""
    settings = Settings(tracking_uri(champion_project), champion_project)
    with TestClient(application(settings), "http://127.0.0.1") as client:
        yield client
