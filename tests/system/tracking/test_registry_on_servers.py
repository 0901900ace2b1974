"""A registry on MLflow's own server: versions are fetched, and its champion is followed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from champions import HEADER_ROW, register_champion
from model_server import free_port, running_server
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.tracking.registry import CHAMPION, MODEL_NAME, pull
from voxcast.web.model_switch import ModelSwitch
from voxcast.web.settings import Settings

ROW = {**HEADER_ROW, "app": "segment"}
START_S = 300.0  # at most


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with two versions; it keeps their files."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    with running_server(command, port, folder, None, START_S, "/health") as url:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", url)
            patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")  # of a busy machine
            for subjects in (20, 24):
                register_champion(tmp_path_factory.mktemp("project"), subjects)
        assert len([*folder.rglob("bundle.json")]) == 2
        yield url


def median(service: PredictionService) -> float:
    (answer,) = service.predict([ROW])
    return float(answer["runtime_s_median"])


def test_each_version_is_fetched(server: str, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    assert pull(store, server, "1") == store.champion() == "1"
    assert pull(store, server) == store.champion() == "2"
    first, second = (median(PredictionService(store.open(number))) for number in "12")
    assert first != second


def test_the_service_follows_the_champion_of_the_server(server: str, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    switch, client = (
        ModelSwitch(Settings(store, registry=server)),
        mlflow.MlflowClient(server, server),
    )
    for number in ("1", "2"):
        client.set_registered_model_alias(MODEL_NAME, CHAMPION, number)
        switch.look()
        assert switch.champion is not None
        assert switch.champion.version == store.champion() == number
        expected = median(PredictionService(store.open(number)))
        assert median(switch.champion.predictions) == expected
