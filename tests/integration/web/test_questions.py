"""POST /recommend and /requests: against the verbs on the same image, and what is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from voxcast.allocation.requests.strategies import STRATEGIES
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
        ({"cluster": "cloud", "policy": "safe"}, ("--cluster", "cloud", "--policy", "safe")),
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
    ("fields", "arguments"),
    [
        ({}, ()),
        ({"alpha": 2, "beta": 1, "gamma": 0.5, "configuration": {"cpus": 2}},
         ("--cost", "2,1,0.5", "--cpus", "2")),
        ({"checkpoint_s": 0.1, "restart_s": 0.2},
         ("--checkpoint", "0.1,0.2")),
        ({"strategy": "equal_time"}, ("--strategy", "equal_time")),
    ],
)  # fmt: skip
def test_the_sequences_are_those_of_the_verb(
    site_service: TestClient, image_row: dict[str, Any], verb: Callable[..., Any],
    fields: dict[str, Any], arguments: tuple[str, ...],
) -> None:  # fmt: skip
    expected = {row["strategy"]: row for row in verb("requests", *arguments)}
    answer = site_service.post("/requests", json={"row": image_row, **fields})
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert [s["strategy"] for s in content["sequences"]] == sorted(
        expected, key=lambda name: expected[name]["expected_cost"]
    )
    for sequence in content["sequences"]:
        wanted = expected[sequence["strategy"]]
        assert [_numbers(r) for r in sequence["sequence"]] == [
            pytest.approx(_numbers(r), rel=1e-9) for r in wanted["sequence"]
        ]
        for name in ("expected_cost", "normalised_cost"):
            assert sequence[name] == pytest.approx(wanted[name], rel=1e-9)
        assert sequence["meaning"] == STRATEGIES[sequence["strategy"]].meaning
        # Of the verb each sequence has the notes of the prediction, too.
        of_prediction = [note for note in content["notes"] if not note.startswith("skipped")]
        assert sequence["notes"] + of_prediction == wanted["notes"]
    left_out = [name for name in STRATEGIES if name not in expected]
    if "strategy" not in fields:
        assert content["need_checkpoints"] == left_out
    predicted = site_service.post("/predict", json={"rows": [image_row]}).json()["predictions"]
    assert content["host"] == predicted[0]["host"]
    levels, runtimes = zip(*content["knots"], strict=True)
    assert 0.5 in levels
    assert list(levels) == sorted(levels)
    assert list(runtimes) == sorted(runtimes)


def _numbers(request: float | dict[str, Any]) -> list[float]:
    return [float(n) for n in request.values()] if isinstance(request, dict) else [request]


def test_an_image_unlike_all_that_was_measured_is_answered_with_a_warning(
    site_service: TestClient, image_row: dict[str, Any]
) -> None:
    parameters = {"iterations": 60}
    answer = site_service.post("/requests", json={"row": image_row, "parameters": parameters})
    assert answer.json()["notes"][-1] == "so the normalised cost is an estimate only"
    assert answer.json()["notes"][0].startswith("out of range: ")


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        (
            "recommend",
            {"cluster": "osc,policy=cheapest"},
            400,
            "unknown cluster; choose from cloud, local",
        ),
        ("recommend", {"cluster": "../app/slant"}, 400, "unknown cluster"),
        ("recommend", {"policy": "balanced\nx"}, 400, "unknown policy; choose from balanced"),
        (
            "recommend",
            {"cluster": "osc", "partition": "p\n#SBATCH -w x"},
            400,
            "unknown partition",
        ),
        ("recommend", {"deadline": "soon"}, 400, "soon"),
        ("recommend", {"deadline": "2001-01-01"}, 400, "deadline: is in the past"),
        ("recommend", {"deadline": "1e999h"}, 400, "deadline: not a duration or a time"),
        ("recommend", {"budget_usd": -1}, 422, "budget_usd"),
        ("recommend", {"overrides": ["cluster.billing.whole_node=true"]}, 422, "overrides"),
        (
            "recommend",
            {"configurations": [{"device": "cpu", "cpus": 0}]},
            422,
            "configurations.0.cpus",
        ),
        (
            "recommend",
            {"configurations": [{"device": "cpu", "cpus": 60_000}]},
            400,
            "no configuration fits",
        ),
        ("recommend", {"configurations": [{"device": "gpu", "cpus": 1}]}, 400, "unknown device"),
        ("recommend", {"configurations": []}, 422, "configurations"),
        ("recommend", {"app": "nothing"}, 400, "unknown application"),
        ("recommend", {"parameters": {"speed": 1}}, 400, "unknown parameter"),
        ("requests", {"alpha": 0}, 422, "alpha"),
        ("requests", {"gamma": -1}, 422, "gamma"),
        ("requests", {"checkpoint_s": 1}, 422, "must be given together"),
        ("requests", {"strategy": "mixed_ckpt"}, 422, "needs checkpoint_s and restart_s"),
        (
            "requests",
            {"strategy": "guess"},
            422,
            "strategy: unknown; choose from all, brute_force",
        ),
        ("requests", {"points": 10_000}, 422, "points"),
        ("requests", {"law": "lognormal(3,0.5)"}, 422, "law"),
        ("requests", {"alpha": 1e308, "gamma": 1e308}, 400, "out of the range of a double"),
        ("requests", {"configuration": {"device": "tpu"}}, 400, "unknown device"),
    ],
)
def test_a_wrong_question_is_refused(
    site_service: TestClient, image_row: dict[str, Any], path: str, fields: dict[str, Any],
    status: int, message: str,
) -> None:  # fmt: skip
    answer = site_service.post(f"/{path}", json={"row": image_row, **fields})
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
        "cheapest",
        "safe",
    ]
    assert (content["default_cluster"], content["default_policy"]) == ("local", "balanced")
    osc = content["clusters"][2]
    assert not osc["free"]
    assert osc["node_types"][0]["prices"]["usd_per_core_hour"] == 0.003
    assert content["policies"][1]["risk"] == pytest.approx(0.2)
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
