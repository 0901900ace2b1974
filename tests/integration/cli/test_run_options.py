"""Parameters, devices and GPUs of ``predict``, ``recommend`` and ``requests``, here and behind a
server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import voxcast as command
from model_server import free_port, running_server
from served_project import CONFIGURATIONS, PROJECT, served_project
from voxcast.api.question import allocations
from voxcast.errors import ConfigError
from voxcast.records import Configuration

# A machine of known size, whatever the tests run on.
HERE = (
    "-S", "cluster.node_types.machine.cores=4", "-S", "cluster.node_types.machine.memory=8GB",
    "-S", "cluster.node_types.machine.gpus=2",
)  # fmt: skip
CPU_1, CPU_2, GPU = CONFIGURATIONS


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "VOXCAST_PROJECT"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        served_project(folder, network=False)
    (folder / "conf").symlink_to(PROJECT / "conf")
    return folder


@pytest.fixture(scope="module")
def url(project: Path) -> Iterator[str]:
    port = free_port()
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    with running_server(command, port, project, variables) as address:
        yield address


@pytest.fixture(autouse=True)
def in_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "VOXCAST_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)


def voxcast(*arguments: str, code: int = 0) -> tuple[str, str]:
    answer = command(*arguments, code=code)
    return answer.out, answer.err


def predictions(*options: str) -> list[dict[str, Any]]:
    (answer,) = json.loads(voxcast("predict", "head.nii.gz", "--json", *options)[0])
    rows: list[dict[str, Any]] = answer["predictions"]
    return rows


def sizes(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["device"], int(row["cpus"]), int(row["gpus"])) for row in rows]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [("cpu", 1, 0), ("cpu", 2, 0), ("gpu", 2, 1)]),
        (("--cpus", "4"), [("cpu", 4, 0)]),
        (("--gpus", "0"), [("cpu", 1, 0), ("cpu", 2, 0)]),
        (("--gpus", "1,2"), [("gpu", 2, 1), ("gpu", 2, 2)]),
        (("--gpus", "0,1", "--cpus", "3"), [("cpu", 3, 0), ("gpu", 3, 1)]),
        (("--gpus", "1", "--cpus", "1,8"), [("gpu", 1, 1), ("gpu", 8, 1)]),
    ],
)
def test_devices_and_gpus_choose_among_allocations(
    options: tuple[str, ...], expected: list[tuple[str, int, int]]
) -> None:
    assert sizes(predictions(*options)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpus", "-1"), "must be whole numbers of at least 0, not '-1'"),
        (("--gpus", "one"), "must be whole numbers of at least 0, not 'one'"),
        (("-p", "iteration=3"), "iteration: unknown parameter; choose from iterations"),
        (("-p", "iterations=many"), "iterations: must be int, not 'many'"),
        (("-p", "iterations=true"), "iterations: must be int, not True"),
        (("-p", "iterations=1e200"), "iterations: must be finite, and below 1e100"),
        (("-p", "iterations"), "--param: needs NAME=VALUE, not 'iterations'"),
    ],
)
@pytest.mark.parametrize("verb", ["predict", "recommend"])
def test_what_the_model_does_not_have_is_refused(
    verb: str, options: tuple[str, ...], message: str
) -> None:
    _, err = voxcast(verb, "head.nii.gz", *options, code=2)
    assert message in err
    assert "Traceback" not in err


def test_parameters_enter_every_row(url: str) -> None:
    for where in ((), ("--model", url)):
        rows = predictions("--app", "segment", "-p", "iterations=60", *where)
        assert all("parameter.iterations" in row["out_of_range"].split() for row in rows)
    assert not any("iterations" in row["out_of_range"] for row in predictions())


def test_a_server_has_the_same_allocations_and_parameters(url: str) -> None:
    here = predictions("--gpus", "2", "--cpus", "2")
    there = predictions("--gpus", "2", "--cpus", "2", "--model", url)
    assert there == here
    for options in (("-p", "iteration=3"), ("-p", "iterations=many")):
        _, refused_here = voxcast("predict", "head.nii.gz", *options, code=2)
        _, refused_there = voxcast("predict", "head.nii.gz", "--model", url, *options, code=2)
        assert refused_there == refused_here


def test_the_recommendation_is_among_the_gpus_asked_for() -> None:
    out, _ = voxcast("recommend", "head.nii.gz", "--json", "--gpus", "1", "--cpus", "1,2", *HERE)
    content = json.loads(out)
    rows = content["images"][0]["configurations"]
    assert {(row["device"], row["cpus"], row["gpus"]) for row in rows} == {
        ("gpu", 1, 1), ("gpu", 2, 1),
    }  # fmt: skip
    assert content["images"][0]["chosen"]["gpus"] == 1
    every, _ = voxcast("recommend", "head.nii.gz", "--json", "-p", "iterations=60", *HERE)
    content = json.loads(every)
    assert content["parameters"] == {"iterations": 60}
    rows = content["images"][0]["configurations"]
    assert {row["gpus"] for row in rows} == {0, 1}
    assert all("parameter.iterations" in row["out_of_range"] for row in rows)


def test_requests_are_of_the_allocation_and_parameters_asked_for() -> None:
    image = ("requests", "head.nii.gz", "--strategy", "mean_doubling", "--json")
    options = ("--gpus", "1", "-p", "iterations=60")
    (sequence,) = json.loads(voxcast(*image, *options)[0])
    notes = " ".join(sequence["notes"])
    assert "1 GPU was not measured" in notes
    assert "iterations is 60" in notes
    _, err = voxcast("requests", "exponential(1)", "-p", "iterations=3", code=2)
    assert "--param: is for an image" in err


def test_allocations_are_those_of_the_model() -> None:
    listed = [CPU_1, CPU_2]
    assert allocations([GPU], (4,), None) == [Configuration("gpu", 4, 1)]
    with pytest.raises(ConfigError, match="the model has cpu, 1 CPU; cpu, 2 CPUs"):
        allocations(listed, None, (1,))
