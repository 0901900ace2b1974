"""A registry on an MLflow server with PostgreSQL and a bucket: read, verified, served, followed.

The whole graph on these servers is in ``tests/system/test_back_ends.py``.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from champions import HEADER_ROW, register_champion
from model_server import free_port, running_server
from production_servers import BINARIES, Servers, missing, plain_environment, production_servers
from voxcast.api.model import Model
from voxcast.serving.client import Client
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.tracking.registry import CHAMPION, MODEL_NAME, follow, pull

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}"),
]
ROW = {**HEADER_ROW, "app": "segment"}
SWITCH_S = 60.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with production_servers(tmp_path_factory.mktemp("servers")) as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", running.mlflow)
            for subjects in (20, 24):
                register_champion(tmp_path_factory.mktemp("project"), subjects)
        yield running


def test_the_files_of_versions_are_in_the_bucket(servers: Servers) -> None:
    assert sum(key.endswith("bundle.json") for key in servers.keys("")) == 2


def median(store: ModelStore, number: str) -> float:
    answers = Model(PredictionService(store.open(number))).predict([ROW])
    return float(answers["runtime_s_median"].item())


def test_each_version_is_fetched(servers: Servers, tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    assert pull(store, servers.mlflow, "1") == store.champion() == "1"
    assert pull(store, servers.mlflow) == store.champion() == "2"
    assert median(store, "1") != median(store, "2")
    follow(store, servers.mlflow)
    assert store.champion() == "2"


def test_the_service_follows_the_champion_of_the_server(servers: Servers, tmp_path: Path) -> None:
    variables = {**plain_environment(), "MLFLOW_TRACKING_URI": servers.mlflow}
    port = free_port()
    command = [str(BINARIES / "voxcast"), "serve", "--port", str(port), "--poll", "1s"]
    aliases, store = (
        mlflow.MlflowClient(servers.mlflow, servers.mlflow),
        ModelStore(tmp_path / "x"),
    )
    with running_server(command, port, tmp_path, variables, path="/health/ready") as url:
        client = Client(url)
        for number in ("1", "2"):
            aliases.set_registered_model_alias(MODEL_NAME, CHAMPION, number)
            deadline = time.monotonic() + SWITCH_S
            while client.version != number:
                assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
                time.sleep(0.2)
            (answer,) = client.predict([ROW], 0.95)
            pull(store, servers.mlflow, number)
            assert answer["runtime_s_median"] == pytest.approx(median(store, number), rel=1e-9)
            assert answer["model_version"] == number
