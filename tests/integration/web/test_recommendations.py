"""POST /recommend: against `voxcast recommend` on the same image and site, and what is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.server import Settings


def asked(site_service: TestClient, image_row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    answer = site_service.post("/recommend", json={"row": image_row, **fields})
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
         ("--cluster", "cloud:on_demand", "--budget", "0.5")),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_the_verb(
    site_service: TestClient, image_row: dict[str, Any], verb: Callable[..., Any],
    fields: dict[str, Any], arguments: tuple[str, ...],
) -> None:  # fmt: skip
    content = verb("recommend", *arguments)
    (image,) = content.pop("images")
    expected = {**content, **image}
    del expected["image"]
    answer = asked(site_service, image_row, **fields)
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


def test_where_nothing_meets_the_budget_the_nearest_is_told(
    site_service: TestClient, image_row: dict[str, Any]
) -> None:
    answer = asked(site_service, image_row, cluster="osc", budget_usd=1e-9)
    assert answer["chosen"] is None
    assert answer["nearest"] in answer["configurations"]
    assert answer["why"].startswith("no configuration can")
    assert answer["script"] == ""
    assert answer["because"]


def test_the_script_is_taken_by_a_shell(
    site_service: TestClient, image_row: dict[str, Any], tmp_path: Path
) -> None:
    host = "x\n#SBATCH --wrap=\u001b[31mboom\u2028#SBATCH a"
    answer = asked(site_service, image_row, cluster="osc", host=host)
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
    assert asked(site_service, image_row, cluster="local")["script"] == ""


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"cluster": "osc,policy=thrifty"}, 400, "unknown cluster; choose from cloud, local"),
        ({"cluster": "../app/slant"}, 400, "unknown cluster"),
        ({"policy": "balanced\nx"}, 400, "unknown policy; choose from balanced"),
        ({"cluster": "osc", "partition": "p\n#SBATCH -w x"}, 400, "unknown partition"),
        ({"deadline": "soon"}, 400, "soon"),
        ({"deadline": "2001-01-01"}, 400, "deadline: is in the past"),
        ({"deadline": "1e999h"}, 400, "deadline: not a duration or a time"),
        ({"budget_usd": -1}, 422, "budget_usd"),
        ({"overrides": ["cluster.billing.whole_node=true"]}, 422, "overrides"),
        ({"configurations": [{"device": "cpu", "cpus": 0}]}, 422, "configurations.0.cpus"),
        ({"configurations": [{"device": "cpu", "cpus": 60_000}]}, 400, "no configuration fits"),
        ({"configurations": [{"device": "gpu", "cpus": 1}]}, 400, "unknown device"),
        ({"configurations": []}, 422, "configurations"),
        ({"app": "nothing"}, 400, "unknown application"),
        ({"parameters": {"speed": 1}}, 400, "unknown parameter"),
    ],
)
def test_a_wrong_question_is_refused(
    site_service: TestClient,
    image_row: dict[str, Any],
    fields: dict[str, Any],
    status: int,
    message: str,
) -> None:
    answer = site_service.post("/recommend", json={"row": image_row, **fields})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["detail"]


def test_sites_are_those_of_the_project(site_service: TestClient, site_project: Path) -> None:
    content = site_service.get("/sites").json()
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
    assert osc["node_types"][0]["prices"]["usd_per_core_hour"] == 0.003
    assert content["policies"][2]["risk"] == pytest.approx(0.2)
    path = site_project / "conf/cluster/private.yaml"
    text = path.read_text()
    try:
        path.write_text("billing: 1\n")
        private = site_service.get("/sites").json()["clusters"][3]
        assert "private.yaml" in private["problem"]
        path.write_text(text.replace("cores: 4", "cores: 6"))
        private = site_service.get("/sites").json()["clusters"][3]
        assert private["node_types"][0]["cores"] == 6
    finally:
        path.write_text(text)


def test_without_a_project_the_sites_are_those_of_the_installation(champion_project: Path) -> None:
    settings = Settings(ModelStore.of(champion_project))
    with TestClient(application(settings), "http://127.0.0.1") as service:
        clusters = service.get("/sites").json()["clusters"]
    assert "osc" in [cluster["name"] for cluster in clusters]
