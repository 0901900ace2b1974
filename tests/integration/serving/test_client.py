"""The champion in this process and behind a real server: the same predictions and refusals."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from champions import HEADER_ROW
from model_server import free_port, running_server
from voxcast.errors import ImageError, ModelError, UnlearnedError
from voxcast.images.characteristics import characteristics
from voxcast.images.volume import Volume
from voxcast.serving.champion import Champion
from voxcast.serving.client import Client, ServedFacts
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import Row


@pytest.fixture(scope="module")
def local(project: Path) -> Champion:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return PredictionService.of_project(project).champion()


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
    return replace(local, predict=Client(url).predict)


def refusal(champion: Champion, row: dict[str, Any]) -> ModelError:
    with pytest.raises(ModelError) as caught:
        champion.predict([row], 0.95)
    return caught.value


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
        ({"cpus": 0.5}, "row 0: cpus: must be a whole number, not 0.5"),
        ({"dtype": "elephant"}, "not 'elephant'"),
        ({"noise_ratio": 0.1}, "row 0: foreground_voxels: is missing"),
        ({"parameters_json": '{"iteration": 3}'}, "unknown parameter; choose from iterations"),
        ({"dtype": None}, "row 0: dtype: is missing"),
        ({"cpus": "two"}, "row 0: cpus: must be a number, not 'two'"),
        ({"host": 7}, "row 0: host: must be text, not 7"),
        ({"volume": "no base64"}, "row 0: volume: is not base64"),
    ],
)
def test_local_and_remote_models_refuse_with_the_same_message(
    local: Champion, served: Champion, change: dict[str, Any], message: str
) -> None:
    row = {**HEADER_ROW, **change}
    in_process, over_http = refusal(local, row), refusal(served, row)
    assert message in in_process.problem
    assert over_http.problem == in_process.problem


def test_local_and_remote_models_cast_numbers_to_doubles(
    local: Champion, served: Champion
) -> None:
    expected = local.predict([{**HEADER_ROW, "cpus": 2.0}], 0.95)
    row = {**HEADER_ROW, "shape_i": 60, "cpus": "2"}
    assert local.predict([row], 0.95) == served.predict([row], 0.95) == expected


def test_threads_share_a_client(local: Champion, url: str) -> None:
    rows = [{**HEADER_ROW, "shape_i": float(n)} for n in range(40, 80)]
    expected = local.predict(rows, 0.95)
    client = Client(url)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: client.predict([row])[0], rows))
    # Rows that are answered together may differ from a row alone in the last digit.
    assert [a["model_version"] for a in answers] == [e["model_version"] for e in expected]
    for target in ("cpu_s_median", "runtime_s_upper", "peak_rss_bytes_upper"):
        assert [a[target] for a in answers] == pytest.approx(
            [e[target] for e in expected], rel=1e-9
        )


def test_a_service_with_a_token(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, token = free_port(), "0123456789abcdef"
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    variables |= {"MLFLOW_DISABLE_TELEMETRY": "true", "VOXCAST_TOKEN": token}
    with running_server([*command, "--project", str(project)], port, project, variables) as url:
        with pytest.raises(ModelError, match="the server wants a token"):
            Client(url).predict([HEADER_ROW])
        with pytest.raises(ModelError, match="the server refuses the token"):
            Client(url, "f" * 16).predict([HEADER_ROW])
        monkeypatch.setenv("VOXCAST_TOKEN", token)
        assert Client(url).predict([HEADER_ROW])
    assert token not in (project / "server.log").read_text()


def test_the_server_tells_the_allocations_and_what_its_model_sees(
    url: str, local: Champion, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Client(url).champion()
    for name in set(ServedFacts.model_fields) - {"network_points"}:
        assert getattr(there.facts, name) == getattr(local.facts, name)
    assert (there.app, there.network_points) == (local.app, local.network_points) == ("segment", 0)
    monkeypatch.chdir(tmp_path)  # outside of any project
    rows = there.request_rows(project / "head.nii.gz")
    assert rows == local.request_rows(project / "head.nii.gz")
    with pytest.raises(UnlearnedError, match="unknown application; the model has segment"):
        Client(url).champion("unheard")
