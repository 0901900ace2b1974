"""The champion in this process and behind a real server: the same predictions and refusals."""

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from champions import HEADER_ROW
from model_server import free_port, running_server
from voxcast.errors import ImageError, ModelError
from voxcast.images.characteristics import characteristics
from voxcast.images.headers import read_header
from voxcast.images.volumes import read_volume
from voxcast.serving import http_liveness
from voxcast.serving.champion import Champion
from voxcast.serving.client import post
from voxcast.serving.request_rows import header_of
from voxcast.tracking.current_champion import local_champion
from voxcast.tracking.runs import tracking_uri


@pytest.fixture(scope="module")
def local(project: Path) -> Champion:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return local_champion(tracking_uri(project))


@pytest.fixture(scope="module")
def url(project: Path) -> Iterator[str]:
    port = free_port()
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    variables["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with running_server([*command, "--project", str(project)], port, project, variables) as url:
        yield url


@pytest.fixture(scope="module")
def served(url: str, local: Champion) -> Champion:
    return replace(local, predict=partial(post, url))


def refusal(champion: Champion, row: dict[str, Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        champion.predict([row], 0.95)
    return caught.value


def test_request_rows_describe_the_image(project: Path, local: Champion) -> None:
    rows = local.request_rows(project / "head.nii.gz")
    assert [row["cpus"] for row in rows] == [1.0, 2.0]
    assert {row["app"] for row in rows} == {"segment"}
    assert header_of(rows[0]) == read_header(project / "head.nii.gz")
    reading = read_volume(project / "head.nii.gz")
    contents = characteristics(reading.coarse, reading.foreground)
    assert all(contents.items() <= row.items() for row in rows)
    assert "volume" not in rows[0]  # the model has no network
    header_only = replace(local, header_only=True).request_rows(project / "head.nii.gz")
    assert not contents.keys() & header_only[0].keys()
    no_voxels = replace(local, characteristics=()).request_rows(project / "head.nii.gz")
    assert no_voxels == header_only  # the header alone decides
    with pytest.raises(ImageError, match="no such file"):
        local.request_rows(project / "gone.nii.gz")


@pytest.mark.parametrize("header_only", [False, True])
def test_local_and_remote_models_predict_the_same(
    project: Path, local: Champion, served: Champion, header_only: bool
) -> None:
    rows = replace(local, header_only=header_only).request_rows(project / "head.nii.gz")
    predictions = local.predict(rows, 0.9, explain=True)
    assert [p["input_level"] for p in predictions] == 2 * ["header" if header_only else "volume"]
    assert served.predict(rows, 0.9, explain=True) == predictions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"app": "unheard"}, "row 0: unheard: unknown application; the model has segment"),
        ({"cpus": 0.5}, "row 0: cpus: must be between 1 and 65536"),
        ({"dtype": "elephant"}, "row 0: dtype: unknown type 'elephant'"),
        ({"noise_ratio": 0.1}, "row 0: foreground_voxels: is missing"),
        ({"parameters_json": '{"iteration": 3}'}, "unknown parameter; choose from iterations"),
    ],
)
def test_local_and_remote_models_refuse_with_the_same_message(
    local: Champion, served: Champion, change: dict[str, Any], message: str
) -> None:
    row = {**HEADER_ROW, **change}
    in_process, over_http = refusal(local, row), refusal(served, row)
    assert message in in_process.problem
    assert over_http.problem == in_process.problem


def test_local_and_remote_models_want_the_types_of_the_signature(
    local: Champion, served: Champion
) -> None:
    incomplete = {name: value for name, value in HEADER_ROW.items() if name != "dtype"}
    for row, column in ((incomplete, "dtype"), ({**HEADER_ROW, "cpus": "two"}, "cpus")):
        for champion in (local, served):
            assert column in refusal(champion, row).problem


def test_local_and_remote_models_cast_numbers_to_doubles(
    local: Champion, served: Champion
) -> None:
    expected = local.predict([{**HEADER_ROW, "cpus": 2.0}], 0.95)
    row = {**HEADER_ROW, "shape_i": 60, "cpus": "2"}
    assert local.predict([row], 0.95) == served.predict([row], 0.95) == expected


def test_a_server_that_never_answers_is_left_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_liveness, "TIMEOUT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ModelError, match="the server does not answer within 1 s; is it run"):
            post(url, [HEADER_ROW], 0.95)


def test_an_unreachable_server_is_a_model_error() -> None:
    port = free_port()
    with pytest.raises(ModelError, match="is it running"):
        post(f"http://127.0.0.1:{port}", [HEADER_ROW], 0.95)
    with pytest.raises(ModelError, match="not an HTTP address"):
        post("127.0.0.1", [HEADER_ROW], 0.95)
