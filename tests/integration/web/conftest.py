"""A service in this process, on a champion of planted runs."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from champions import write_champion
from small_head import write_head
from voxcast.cli import main
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.web.application import application
from voxcast.web.server import Settings


@pytest.fixture(scope="module")
def service(champion_project: Path) -> Iterator[TestClient]:
    """A client of a service of that champion, in this process."""
    settings = Settings(ModelStore.of(champion_project), champion_project)
    with TestClient(application(settings), "http://127.0.0.1") as client:
        yield client


ROOT = Path(__file__).parents[3]
IMAGE = "head.nii.gz"


@pytest.fixture(scope="package")
def site_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the clusters and policies of this repository, a champion, and an image."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy2(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "conf", folder / "conf")
    write_champion(folder, 40)
    write_head(folder / IMAGE, spacing_mm=2.5, edge=80)
    return folder


@pytest.fixture(scope="module")
def site_service(site_project: Path) -> Iterator[TestClient]:
    """A client of a service of that project, in this process."""
    settings = Settings(ModelStore.of(site_project), site_project)
    with TestClient(application(settings), "http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="package")
def image_row(site_project: Path) -> dict[str, Any]:
    """The row of the image, as the verbs ask about it."""
    champion = PredictionService.of_project(site_project).champion()
    (row,) = champion.request_rows(site_project / IMAGE, champion.configurations[:1])
    return {k: v for k, v in row.items() if k not in ("app", "device", "cpus", "gpus")}


@pytest.fixture
def verb(site_project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs a verb on the image in the project, and reads its JSON."""
    for name in ("MLFLOW_TRACKING_URI", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(site_project)

    def run(name: str, *arguments: str) -> Any:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert main([name, IMAGE, *arguments, "--json"]) == 0, err.getvalue()
        return json.loads(out.getvalue())

    return run
