"""The champion in this process and behind a service: the same predictions and refusals."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from champions import HEADER_ROW
from voxcast.errors import ImageError, ModelError, UnlearnedError
from voxcast.images.characteristics import characteristics
from voxcast.images.volume import Volume
from voxcast.serving.champion import Champion
from voxcast.serving.client import Client, ServedFacts
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import Row
from voxcast.web.application import application
from voxcast.web.server import Settings


@pytest.fixture(scope="module")
def local(project: Path) -> Champion:
    return PredictionService.of_project(project).champion()


@pytest.fixture(scope="module")
def client(project: Path) -> Iterator[Client]:
    """Return a client of a service in this process."""
    client = Client("http://127.0.0.1")
    with TestClient(application(Settings(ModelStore.of(project), project))) as connection:
        client._http = connection
        yield client


def test_request_rows_describe_the_image(project: Path, local: Champion) -> None:
    rows = local.request_rows(project / "head.nii.gz")
    assert [row["cpus"] for row in rows] == [1.0, 2.0]
    assert {row["app"] for row in rows} == {"segment"}
    assert Row.of(rows[0]).header == Volume.open(project / "head.nii.gz").header
    contents = characteristics(Volume.open(project / "head.nii.gz").read())
    assert all(contents.items() <= row.items() for row in rows)
    assert "volume" not in rows[0]  # the model has no network
    header_only = replace(local, header_only=True).request_rows(project / "head.nii.gz")
    assert not contents.keys() & header_only[0].keys()
    no_contents = replace(local.facts, characteristics=())
    no_voxels = replace(local, facts=no_contents).request_rows(project / "head.nii.gz")
    assert no_voxels == header_only  # the header alone decides
    with pytest.raises(ImageError, match="no such file"):
        local.request_rows(project / "gone.nii.gz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"app": "unheard"}, "row 0: unheard: unknown application; the model has segment"),
        ({"device": "tpu"}, "row 0: tpu: unknown device; the model has cpu"),
        ({"cpus": 0.5}, "row 0: cpus: must be a whole number, not 0.5"),
        ({"cpus": "two"}, "row 0: cpus: must be a number, not 'two'"),
        ({"cpus": True}, "row 0: cpus: must be a number, not True"),
        ({"dtype": None}, "row 0: dtype: is missing"),
        ({"noise_ratio": 0.1}, "row 0: foreground_voxels: is missing"),
        ({"parameters_json": "[1"}, "row 0: parameters_json: not JSON"),
        ({"parameters_json": '{"iteration": 3}'}, "unknown parameter; choose from iterations"),
        ({"host": 7}, "row 0: host: must be text, not 7"),
        ({"volume": "no base64"}, "row 0: volume: is not base64"),
    ],
)
def test_local_and_remote_models_refuse_with_the_same_message(
    local: Champion, client: Client, change: dict[str, Any], message: str
) -> None:
    problems = []
    for predict in (local.predict, client.predict):
        with pytest.raises(ModelError) as caught:
            predict([{**HEADER_ROW, **change}], 0.95)
        problems.append(caught.value.problem)
    assert message in problems[0]
    assert problems[0] == problems[1]


def test_local_and_remote_models_cast_numbers_to_doubles(local: Champion, client: Client) -> None:
    expected = local.predict([{**HEADER_ROW, "cpus": 2.0}], 0.95)
    row = {**HEADER_ROW, "shape_i": 60, "cpus": "2"}
    assert local.predict([row], 0.95) == client.predict([row], 0.95) == expected


def test_the_server_tells_the_allocations_and_what_its_model_sees(
    client: Client, local: Champion, project: Path
) -> None:
    there = client.champion()
    for name in set(ServedFacts.model_fields) - {"network_points"}:
        assert getattr(there.facts, name) == getattr(local.facts, name)
    assert (there.app, there.network_points) == (local.app, local.network_points) == ("segment", 0)
    rows = there.request_rows(project / "head.nii.gz")
    assert rows == local.request_rows(project / "head.nii.gz")
    with pytest.raises(UnlearnedError, match="unknown application; the model has segment"):
        client.champion("unheard")
