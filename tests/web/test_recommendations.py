"""POST /recommend: against `voxcast recommend` on the same image and site, and what is refused."""

import contextlib
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from champions import register_champion
from small_head import write_head
from voxcast.cli import main
from voxcast.serving.champion import Champion
from voxcast.tracking.current_champion import local_champion
from voxcast.tracking.runs import tracking_uri
from voxcast.web.application import application
from voxcast.web.settings import Settings

ROOT = Path(__file__).parents[2]
IMAGE = "head.nii.gz"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recommend")
    shutil.copy2(ROOT / "params.yaml", folder)
    shutil.copytree(ROOT / "conf", folder / "conf")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        register_champion(folder, 40)
    write_head(folder / IMAGE, spacing_mm=2.5, edge=80)
    return folder


@pytest.fixture(scope="module")
def client(project: Path) -> Iterator[TestClient]:
    with TestClient(application(Settings(tracking_uri(project), project))) as client:
        yield client


@pytest.fixture(scope="module")
def row(project: Path) -> dict[str, Any]:
    """The row of the image as `voxcast recommend` asks about it."""
    champion: Champion = local_champion(tracking_uri(project))
    (row,) = champion.request_rows(project / IMAGE, champion.configurations[:1])
    return {k: v for k, v in row.items() if k not in ("app", "device", "cpus", "gpus")}


@pytest.fixture
def verb(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that runs a verb in the project and reads its JSON."""
    for name in ("MLFLOW_TRACKING_URI", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)

    def run(*arguments: str, code: int = 0) -> Any:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert main([*arguments, "--json"]) == code, err.getvalue()
        return json.loads(out.getvalue())

    return run


def asked(client: TestClient, row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = client.post("/recommend", json={"row": row, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({}, ()),
        ({"cluster": "osc"}, ("--cluster", "osc")),
        ({"cluster": "cloud", "policy": "thrifty"}, ("--cluster", "cloud", "--policy", "thrifty")),
        ({"cluster": "osc", "deadline": "2h"}, ("--cluster", "osc", "--deadline", "2h")),
        ({"cluster": "cloud", "budget_usd": 0.5, "partition": "on_demand"},
         ("--cluster", "cloud", "--budget", "0.5", "--partition", "on_demand")),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_the_verb(
    client: TestClient, row: dict[str, Any], verb: Callable[..., Any],
    fields: dict[str, Any], arguments: tuple[str, ...],
) -> None:  # fmt: skip
    content = verb("recommend", IMAGE, *arguments)
    (image,) = content.pop("images")
    expected = {**content, **image}
    del expected["image"]
    answer = asked(client, row, **fields)
    assert {name: answer[name] for name in expected} == _rounded(expected)
    assert answer["input_level"] == "volume"
    assert answer["model_version"] == "1"


def _rounded(content: Any) -> Any:
    """Return content with numbers that are compared to 1e-9 of themselves."""
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_rounded(value) for value in content]
    return pytest.approx(content, rel=1e-9) if isinstance(content, float) else content


def test_policies_deadlines_and_parameters_change_the_choice(
    client: TestClient, row: dict[str, Any]
) -> None:
    chosen = {
        policy: asked(client, row, policy=policy)["chosen"] for policy in ("cautious", "thrifty")
    }
    assert chosen["cautious"]["cpus"] == 2
    assert chosen["thrifty"]["cpus"] == 1
    one_cpu, two_cpus = asked(client, row)["configurations"]
    assert two_cpus["turnaround_bound_s"] < one_cpu["turnaround_bound_s"]
    between = (one_cpu["turnaround_bound_s"] + two_cpus["turnaround_bound_s"]) / 2
    hurried = asked(client, row, policy="thrifty", deadline=f"{between / 3600}h")
    assert hurried["limits"]["deadline_s"] == pytest.approx(between)
    assert hurried["chosen"]["cpus"] == 2
    more = asked(client, row, parameters={"iterations": 40})["configurations"]
    assert more[0]["runtime_s_median"] > 1.2 * one_cpu["runtime_s_median"]
    when = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    assert 10_000 < asked(client, row, deadline=when)["limits"]["deadline_s"] <= 3 * 3600
    four_cpus = [{"device": "cpu", "cpus": 4}]
    content = asked(client, row, configurations=four_cpus, cluster="osc", partition="serial")
    (wide,) = content["configurations"]
    assert (wide["cpus"], wide["measured"]) == (4, False)


def test_where_nothing_meets_the_budget_the_nearest_is_told(
    client: TestClient, row: dict[str, Any]
) -> None:
    answer = asked(client, row, cluster="osc", budget_usd=1e-9)
    assert answer["chosen"] is None
    assert answer["nearest"] in answer["configurations"]
    assert answer["why"].startswith("no configuration is")
    assert answer["script"] == ""
    assert answer["because"]


def test_the_answer_explains_itself(client: TestClient, row: dict[str, Any]) -> None:
    answer = asked(client, row, cluster="osc", policy="cautious")
    assert "not calibrated" in " ".join(answer["caveats"])
    for reason in answer["because"]:
        assert set(reason) == {"name", "factor", "value", "usual", "text"}
        assert reason["factor"] > 0


def test_the_script_is_taken_by_a_shell(
    client: TestClient, row: dict[str, Any], tmp_path: Path
) -> None:
    answer = asked(
        client, row, cluster="osc", host="x\n#SBATCH --wrap=\u001b[31mboom\u2028#SBATCH a"
    )
    script = answer["script"]
    assert script.startswith("#!/bin/bash\n")
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert f"#SBATCH --cpus-per-task={answer['chosen']['cpus']}" in directives
    assert len(directives) == 7
    assert not {"\u001b", "\u2028"} & set(script)
    path = tmp_path / "request.sbatch"
    path.write_text(script)
    command = ["bash", path, "printf", "%s|", "a b", "$HOME"]
    ended = subprocess.run(
        command, env={"SLURM_CPUS_PER_TASK": "2"}, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "a b|$HOME|"
    assert asked(client, row, cluster="local")["script"] == ""


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"cluster": "osc,policy=thrifty"}, 400, "unknown cluster; choose from cloud, local"),
        ({"cluster": "../app/slant"}, 400, "unknown cluster"),
        ({"policy": "balanced\nx"}, 400, "unknown policy; choose from balanced"),
        ({"cluster": "osc", "partition": "p\n#SBATCH -w x"}, 400, "unknown partition"),
        ({"deadline": "soon"}, 400, "soon"),
        ({"deadline": "2001-01-01"}, 400, "deadline: is in the past"),
        ({"deadline": "1e999h"}, 400, "deadline"),
        ({"budget_usd": -1}, 422, "budget_usd"),
        ({"overrides": ["cluster.billing.whole_node=true"]}, 422, "overrides"),
        ({"configurations": [{"device": "cpu", "cpus": 0}]}, 422, "configurations.0.cpus"),
        ({"configurations": [{"device": "cpu", "cpus": 10**6}]}, 400, "no configuration fits"),
        ({"configurations": [{"device": "gpu", "cpus": 1}]}, 400, "unknown device"),
        ({"configurations": []}, 422, "configurations"),
        ({"app": "nothing"}, 400, "unknown application"),
        ({"parameters": {"speed": 1}}, 400, "unknown parameter"),
    ],
)
def test_a_wrong_question_is_refused(
    client: TestClient, row: dict[str, Any], fields: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post("/recommend", json={"row": row, **fields})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["detail"]


def test_sites_are_those_of_the_project(client: TestClient, project: Path) -> None:
    content = client.get("/sites").json()
    assert [cluster["name"] for cluster in content["clusters"]] == [
        "cloud",
        "local",
        "osc",
        "private",
    ]
    assert [policy["name"] for policy in content["policies"]] == [
        "balanced",
        "cautious",
        "thrifty",
    ]
    assert (content["default_cluster"], content["default_policy"]) == ("local", "balanced")
    osc = content["clusters"][2]
    assert not osc["free"]
    assert osc["node_types"][0]["usd_per_core_hour"] == 0.003
    assert content["policies"][2]["risk"] == pytest.approx(0.2)
    path = project / "conf/cluster/private.yaml"
    text = path.read_text()
    try:
        path.write_text("billing: 1\n")
        private = client.get("/sites").json()["clusters"][3]
        assert "private.yaml" in private["problem"]
        path.write_text(text.replace("cores: 4", "cores: 6"))
        private = client.get("/sites").json()["clusters"][3]
        assert private["node_types"][0]["cores"] == 6
    finally:
        path.write_text(text)


def test_without_a_project_the_sites_are_those_of_the_installation(champion_project: Path) -> None:
    with TestClient(application(Settings(tracking_uri(champion_project)))) as client:
        assert "osc" in [cluster["name"] for cluster in client.get("/sites").json()["clusters"]]


def test_questions_and_refusals_are_in_the_document(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for path in ("/recommend", "/requests"):
        route = document["paths"][path]["post"]
        body = route["requestBody"]["content"]
        assert body["application/json"]["schema"]["properties"]["app"]["description"]
        assert "$ref" not in json.dumps(body)
        assert body["multipart/form-data"]["schema"]["properties"]["file"]["format"] == "binary"
        assert set(route["responses"]) >= {"200", "400", "422", "503"}
