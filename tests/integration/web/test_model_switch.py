"""The champion changes: its successor is loaded beside it and takes over, or is refused."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from champions import HEADER_ROW, bundle_of_apps, write_champion
from model_server import free_port, running_server
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.web.model_switch import ModelSwitch
from voxcast.web.server import Settings

POLL_S = 0.2
MOVES = 10
CLIENTS = 4
NETWORK = "tile"
ROW = {**HEADER_ROW, "app": "segment", "cpus": 1.0}
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two versions whose answers differ; version 2 is the champion."""
    folder = tmp_path_factory.mktemp("two")
    write_champion(folder, 20)
    write_champion(folder, 26)
    (folder / "params.yaml").touch()
    return folder


@pytest.fixture
def project(two_versions: Path, tmp_path: Path) -> Path:
    """A copy of that project, for a test that changes it."""
    shutil.copytree(two_versions, tmp_path / "project")
    return tmp_path / "project"


def move(project: Path, number: str) -> None:
    ModelStore.of(project).point(number)


def switch_of(project: Path) -> ModelSwitch:
    return ModelSwitch(Settings(ModelStore.of(project), project, poll_s=POLL_S))


def served_by(switch: ModelSwitch) -> str:
    """Let a switch look; the version that it serves then."""
    switch.look()
    assert switch.champion is not None
    return switch.champion.version


def bundle_index(project: Path, number: str) -> Path:
    return ModelStore.of(project).folder_of(number) / "bundle.json"


def test_the_champion_is_followed_and_a_rollback_too(project: Path) -> None:
    switch = switch_of(project)
    for number in ("2", "2", "1", "2"):
        move(project, number)
        assert served_by(switch) == number
    assert switch.switches == 2


def test_a_version_that_cannot_be_loaded_is_refused_and_the_old_one_stays(project: Path) -> None:
    switch = switch_of(project)
    move(project, "1")
    assert served_by(switch) == "1"
    index = bundle_index(project, "2")
    content = index.read_text()
    index.write_text("{")
    move(project, "2")
    assert served_by(switch) == "1"
    assert "not the file that was registered" in switch.refused["2"]
    move(project, "1")
    assert served_by(switch) == "1"
    assert not switch.refused
    index.write_text(content)
    move(project, "2")
    assert served_by(switch) == "2"


def test_a_pointer_that_is_gone_leaves_the_model_until_it_is_back(project: Path) -> None:
    switch = switch_of(project)
    assert served_by(switch) == "2"
    pointer = project / "models/champion.json"
    pointer.rename(project / "away.json")
    assert served_by(switch) == "2"
    assert "no champion" in switch.problem
    pointer.write_text("no pointer")
    assert served_by(switch) == "2"
    assert "damaged" in switch.problem
    (project / "away.json").rename(pointer)
    move(project, "1")
    assert served_by(switch) == "1"
    assert not switch.problem


def test_the_network_of_a_champion_is_built_before_it_takes_over(tmp_path: Path) -> None:
    store = ModelStore.of(tmp_path)
    with store.new_folder() as work:
        store.add("1", bundle_of_apps(Path(work), 6, NETWORK, name="cnn").folder)
    switch = switch_of(tmp_path)
    assert served_by(switch) == "1"
    assert switch.champion is not None
    point_model = switch.champion.bundle.forecaster(NETWORK).model_at("volume").model
    assert point_model.members[0].regressor.trunk_ is not None


@pytest.fixture
def served(project: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    with running_server([*command, "--poll", f"{POLL_S}s"], port, project):
        yield f"127.0.0.1:{port}"


def test_no_request_is_lost_while_the_champion_changes(project: Path, served: str) -> None:
    expected = {
        number: PredictionService(ModelStore.of(project).open(number)).predict([ROW])[0]
        for number in ("1", "2")
    }
    assert expected["1"]["cpu_s_median"] != expected["2"]["cpu_s_median"]
    answers: list[tuple[int, str, dict[str, object]]] = []
    ended = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(served, timeout=PATIENCE_S)
        while not ended.is_set():
            connection.request("POST", "/predict", json.dumps({"rows": [ROW]}))
            with connection.getresponse() as reply:
                content = json.load(reply)
            answers.append((reply.status, content["model_version"], content["predictions"][0]))

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        for n in range(MOVES):
            number = ("1", "2")[n % 2]
            move(project, number)
            deadline = time.monotonic() + PATIENCE_S
            while (project / "server.log").read_text().count("is served") < n + 2:
                assert time.monotonic() < deadline, f"version {number} is not served"
                time.sleep(POLL_S / 10)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert {status for status, _, _ in answers} == {200}
    assert {version for _, version, _ in answers} == {"1", "2"}
    for _, version, prediction in answers:
        quantiles = {k: v for k, v in expected[version].items() if isinstance(v, float)}
        assert {k: prediction[k] for k in quantiles} == pytest.approx(quantiles, rel=1e-12)
    log = (project / "server.log").read_text()
    assert log.count("is served") == MOVES + 1
    assert "Traceback" not in log
