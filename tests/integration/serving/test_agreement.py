"""All ways to ask one champion: the same rows get the same answers to 1e-9."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import voxcast
from champions import HEADER_ROW
from commands import voxcast as call
from model_server import free_port, running_server
from served_project import CONFIGURATIONS, NETWORK, RIDGE, served_project
from voxcast.serving.champion import Champion
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.signature import OUTPUT_TYPES
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.registry import CHAMPION_URI

TOLERANCE = 1e-9  # relative, of numbers
QUANTILE, PARAMETERS = 0.9, {"iterations": 40}
PARAMS = {"quantile": QUANTILE, "explain": True}

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        return served_project(folder)


@pytest.fixture(scope="module")
def environment(project: Path) -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "VOXCAST_P"))}
    here = {"MLFLOW_TRACKING_URI": tracking_uri(project), "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {**variables, **here, "PATH": f"{Path(sys.executable).parent}:{variables['PATH']}"}


def champion(project: Path, app: str) -> Champion:
    return PredictionService.of_project(project).champion(app)


@pytest.fixture(scope="module")
def rows(project: Path) -> Rows:
    """Return the rows of a head for two applications, of a header, of machines, of a wish."""
    head = project / "head.nii.gz"
    ridge, network = (champion(project, app).request_rows(head) for app in (RIDGE, NETWORK))
    assert len(ridge) == len(CONFIGURATIONS)
    assert all("volume" in row for row in network)
    without_volume = {name: value for name, value in network[0].items() if name != "volume"}
    iterations = {"parameters_json": json.dumps(PARAMETERS)}
    return [
        *ridge, *network, without_volume,
        *({**row, **iterations} for row in (ridge[0], network[1])),
        {**HEADER_ROW, "app": RIDGE, "host": "big", "cpus": 2.0},
        {**HEADER_ROW, "app": RIDGE, "host": "elsewhere", "axcodes": "LPS"},
        {**HEADER_ROW, "app": RIDGE, "shape_i": 900.0, "host": "a"},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def expected(project: Path, rows: Rows) -> Rows:
    """Return the answers of the model in this process."""
    answers = champion(project, RIDGE).predict(rows, QUANTILE, explain=True)
    assert {a["model_version"] for a in answers} == {"1"}
    assert {a["input_level"] for a in answers} == {"header", "volume"}
    assert {a["host_known"] for a in answers} == {True, False}
    assert {bool(a["out_of_range"]) for a in answers} == {True, False}
    assert all(list(answer) == list(OUTPUT_TYPES) for answer in answers)
    return answers


def check(answers: Rows, expected: Rows) -> None:
    """Check that two lists of answers are the same, numbers to `TOLERANCE`."""
    assert len(answers) == len(expected)
    for answer, reference in zip(answers, expected, strict=True):
        assert answer.keys() == reference.keys()
        for name, value in reference.items():
            if isinstance(value, float):
                assert math.isclose(answer[name], value, rel_tol=TOLERANCE), name
            else:
                assert answer[name] == value, name


def in_json(rows: Rows) -> Rows:
    """Return the rows as JSON has them, with bytes in base64."""
    return [
        {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in row.items()}
        for row in rows
    ]


def requests(rows: Rows) -> Iterator[tuple[str, list[int]]]:
    """Yield JSON requests with the places of their rows; MLflow's JSON has no missing bytes."""
    for has_volume in (False, True):
        places = [n for n, row in enumerate(rows) if ("volume" in row) == has_volume]
        records = in_json([rows[n] for n in places])
        yield json.dumps({"dataframe_records": records, "params": PARAMS}), places


@pytest.fixture(scope="module")
def mlflow_url(project: Path, environment: dict[str, str]) -> Iterator[str]:
    """Serve by ``mlflow models serve``."""
    port = free_port()
    command = [
        "mlflow", "models", "serve", "-m", CHAMPION_URI, "--env-manager", "local",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    with running_server(command, port, project, environment) as url:
        yield url


@pytest.fixture(scope="module")
def voxcast_url(project: Path, environment: dict[str, str]) -> Iterator[str]:
    """Serve by ``voxcast serve``."""
    port = free_port()
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    with running_server(command, port, project, environment) as url:
        yield url


def test_the_model_as_mlflow_loads_it(
    project: Path, rows: Rows, expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri(project))
    table = mlflow.pyfunc.load_model(CHAMPION_URI).predict(pd.DataFrame(rows), PARAMS)
    check(table.to_dict("records"), expected)


def test_mlflow_models_serve(mlflow_url: str, rows: Rows, expected: Rows) -> None:
    headers = {"Content-Type": "application/json"}
    for body, places in requests(rows):
        post = urllib.request.Request(f"{mlflow_url}/invocations", body.encode(), headers)
        with urllib.request.urlopen(post) as reply:
            check(json.load(reply)["predictions"], [expected[n] for n in places])


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_table_of_rows(
    project: Path, rows: Rows, expected: Rows, tmp_path: Path, kind: str
) -> None:
    source, target = tmp_path / f"rows.{kind}", tmp_path / "predictions.parquet"
    if kind == "csv":
        pd.DataFrame(in_json(rows)).to_csv(source, index=False)
    else:
        pd.DataFrame(rows).to_parquet(source)
    options = ("--quantile", QUANTILE, "--explain")
    call("predict", source, "--out", target, *options, project=project)
    answers = pd.read_parquet(target)
    assert answers.pop("error").isna().all()
    check(answers.to_dict("records"), expected)
    printed = call("predict", source, "--json", *options, project=project).json
    assert [answer.pop("error") for answer in printed] == [None] * len(rows)
    check(printed, expected)


@pytest.mark.parametrize("version", [None, "1"])
def test_python_with_rows(project: Path, rows: Rows, expected: Rows, version: str | None) -> None:
    model = voxcast.load(version, project=project)
    for requests in (rows, pd.DataFrame(rows)):
        table = model.predict(requests, quantile=QUANTILE, explain=True)
        check(table.to_dict("records"), expected)


@pytest.mark.parametrize(("app", "first"), [(RIDGE, 0), (NETWORK, len(CONFIGURATIONS))])
@pytest.mark.parametrize("door", ["python", "here", "voxcast"])
def test_an_image(
    project: Path,
    expected: Rows,
    request: pytest.FixtureRequest,
    door: str,
    app: str,
    first: int,
) -> None:
    """An image here and behind a service, with parameters and without."""
    configurations = champion(project, app).configurations
    plain = expected[first : first + len(configurations)]
    last = first + len(configurations) - 1
    changed = {RIDGE: expected[6], NETWORK: expected[7]}[app]
    head, position = project / "head.nii.gz", {RIDGE: 0, NETWORK: 1}[app]
    assert (changed["app"], changed["cpus"]) == (app, configurations[position].cpus)
    assert changed["out_of_range"] == "parameter.iterations"
    if door == "python":
        model = voxcast.load(project=project)
        options = {"app": app, "quantile": QUANTILE, "explain": True}
        table = model.predict(head, **options)
        assert set(table.pop("image")) == {str(head)}
        check(table.to_dict("records"), plain)
        chosen = [configurations[position]]
        table = model.predict([head], parameters=PARAMETERS, configurations=chosen, **options)
        check(table.drop(columns="image").to_dict("records"), [changed])
        return
    words = ["predict", head, "--app", app, "--quantile", QUANTILE, "--explain", "--json"]
    if door != "here":
        words += ["--model", request.getfixturevalue(f"{door}_url")]
    for wanted in (expected[last], changed):
        names = ("cpus", "gpus")
        options = [w for n in names for w in (f"--{n}", str(wanted[n]).removesuffix(".0"))]
        if wanted is changed:
            options += ["-p", f"iterations={PARAMETERS['iterations']}"]
        (answer,) = call(*words, *options, project=project).json
        check(answer["predictions"], [wanted])


def test_a_table_behind_a_server(
    project: Path, voxcast_url: str, rows: Rows, expected: Rows, tmp_path: Path
) -> None:
    source = tmp_path / "rows.parquet"
    pd.DataFrame(rows).to_parquet(source)
    options = ("--quantile", QUANTILE, "--explain", "--json", "--model", voxcast_url)
    printed = call("predict", source, *options, project=project).json
    check([{k: v for k, v in answer.items() if k != "error"} for answer in printed], expected)
