"""The champion in this process and behind a real server: the same predictions and refusals."""

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from champions import HEADER_ROW
from misbehaving_server import answers, misbehaving_server
from model_server import free_port, running_server
from voxcast import Client
from voxcast.errors import ImageError, ModelError, RequestError, UnlearnedError
from voxcast.images.characteristics import characteristics
from voxcast.images.volume import Volume
from voxcast.serving.champion import Champion
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.rows import Row
from voxcast.serving.signature import OUTPUT_TYPES


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
    return replace(local, predict=Client(url).predict_rows)


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


def test_an_image_is_asked_about_by_its_characteristics(
    project: Path, local: Champion, url: str
) -> None:
    image = project / "head.nii.gz"
    with Client(url) as client:
        answer = client.predict(image, quantile=0.9, explain=True)
        row = client.row(image)
        again = client.predict(row, configurations=[{"device": "cpu", "cpus": 2}], quantile=0.9)
        assert client.health()["ready"]
        assert list(client.models()["apps"]) == ["segment"]
        with pytest.raises(RequestError, match="parameters_json: iteration: unknown parameter"):
            client.predict(row, parameters={"iteration": 3})
        with pytest.raises(RequestError, match="quantile: must be below 1"):
            client.predict(row, quantile=2)
        with pytest.raises(ImageError, match="no such file"):
            client.predict(project / "gone.nii.gz")
    rows = local.request_rows(image)
    assert answer["model_version"] == "1"
    assert answer["predictions"] == local.predict(rows, 0.9, explain=True)
    assert again["predictions"] == local.predict(rows[1:], 0.9)
    sent = {k: v for k, v in rows[0].items() if k not in ("device", "cpus", "gpus")}
    assert row == sent  # and so nothing else of the image


def test_threads_share_a_client(local: Champion, url: str) -> None:
    rows = [{**HEADER_ROW, "shape_i": float(n)} for n in range(40, 80)]
    expected = local.predict(rows, 0.95)
    with Client(url) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda row: client.predict_rows([row])[0], rows))
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
            Client(url).predict_rows([HEADER_ROW])
        with pytest.raises(ModelError, match="the server refuses the token"):
            Client(url, token="f" * 16).predict_rows([HEADER_ROW])
        monkeypatch.setenv("VOXCAST_TOKEN", token)
        assert Client(url).predict_rows([HEADER_ROW])
    assert token not in (project / "server.log").read_text()


def test_rows_are_asked_about_as_mlflow_has_it() -> None:
    values = {"string": "", "double": 1.0, "long": 1, "boolean": True}
    row = {name: values[kind] for name, kind in OUTPUT_TYPES.items()}
    predictions = {"predictions": [row]}
    with misbehaving_server(answers(200, predictions)) as server, Client(server.url) as client:
        answer = client.predict_rows([{"volume": b"\x00\xff"}], 0.9, explain=True)
        assert answer == predictions["predictions"]
        (request,) = server.received
    assert request.path == "/invocations"
    options = {"quantile": 0.9, "explain": True}
    content = {"dataframe_records": [{"volume": "AP8="}], "params": options}
    assert json.loads(request.body) == content


def test_the_server_tells_the_allocations_and_what_its_model_sees(
    url: str, local: Champion, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Client(url).champion()
    told = {f.name: getattr(there, f.name) for f in fields(Champion) if f.name != "predict"}
    assert told == {name: getattr(local, name) for name in told} | {"network_points": 0}
    monkeypatch.chdir(tmp_path)  # outside of any project
    rows = there.request_rows(project / "head.nii.gz")
    assert rows == local.request_rows(project / "head.nii.gz")
    with pytest.raises(UnlearnedError, match="unknown application; the model has segment"):
        Client(url).champion("unheard")


LISTED = {
    "configurations": [{"device": "cpu", "cpus": 1, "gpus": 0}], "measured": [["cpu", 1, 0]],
    "coarse_points": 64, "network_points": 0, "characteristics": [], "host_classes": [],
    "parameters": {},
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"configurations": None},
        {"configurations": [{"device": "cpu", "cpus": "many", "gpus": 0}]},
        {"measured": [["cpu"]]},
        {"characteristics": 3},
        {"coarse_points": 10**6},
        {"network_points": 4000},
        {"parameters": "iterations"},
    ],
)
def test_a_server_that_lists_nonsense_is_refused(change: dict[str, Any]) -> None:
    for facts, match in (
        (LISTED, None),
        ({**LISTED, **change}, "answers in another form: apps.segment."),
    ):
        listed = answers(200, {"apps": {"segment": facts}, "damaged": {}})
        expected = pytest.raises(ModelError, match=match) if match else nullcontext()
        with misbehaving_server(listed) as server, expected:
            assert Client(server.url).champion().app == "segment"


def test_an_answer_that_would_steer_a_terminal_is_refused() -> None:
    values = {"string": "\x1b[2J", "double": 1.0, "long": 1, "boolean": True}
    row = {name: values[kind] for name, kind in OUTPUT_TYPES.items()}
    expected = pytest.raises(ModelError, match="answers with unprintable characters")
    with misbehaving_server(answers(200, {"predictions": [row]})) as server, expected:
        Client(server.url).predict_rows([HEADER_ROW])


def test_a_prediction_too_few_is_an_error() -> None:
    few = answers(200, {"predictions": [{"runtime_s_median": 1.0}]})
    expected = pytest.raises(ModelError, match="has no prediction for each row")
    with misbehaving_server(few) as server, expected:
        Client(server.url).predict_rows([HEADER_ROW, HEADER_ROW])


def test_questions_have_the_fields_of_the_service() -> None:
    row = {"dtype": "int16", "volume": b"\x00\xff"}
    sent_row = {"dtype": "int16", "volume": "AP8="}
    with misbehaving_server() as server, Client(server.url) as client:
        client.recommend(row, app="a", cluster="osc", deadline="2h", budget_usd=0.5)
        client.requests(row, alpha=0.95, strategy="mean_stdev")
        client.predict(row, quantile=0.9, app=None)
        client.described("/shared/a b.nii.gz", app="a")
        client.sites()
        asked = [(r.method, r.path, json.loads(r.body or "{}")) for r in server.received]
    assert asked == [
        ("POST", "/recommend",
         {"row": sent_row, "app": "a", "cluster": "osc", "deadline": "2h", "budget_usd": 0.5}),
        ("POST", "/requests", {"row": sent_row, "alpha": 0.95, "strategy": "mean_stdev"}),
        ("POST", "/predict", {"rows": [sent_row], "configurations": "all", "quantile": 0.9}),
        ("GET", "/images?path=%2Fshared%2Fa+b.nii.gz&app=a", {}),
        ("GET", "/sites", {}),
    ]  # fmt: skip
