"""Requests from a registered champion: here, behind an address, for BIDS subjects, for a pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import planted
from commands import attempt
from lab import lab
from model_server import free_port, running_server

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("lab"))


def environment() -> dict[str, str]:
    names = ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID")
    return {k: v for k, v in os.environ.items() if k not in names}


@pytest.fixture(scope="module")
def url(project: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    with running_server(command, port, project, environment()) as address:
        yield address


def submit(
    project: Path, *arguments: object, code: int = 0
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    completed = attempt("submit", *arguments, cwd=project)
    assert completed.returncode == code, completed.stderr
    return completed


HERE = ("--cluster", "local", "--app", "segment", "--cpus", "1")


def test_subjects_of_a_dataset_are_submitted_with_predicted_requests(
    project: Path, tmp_path: Path
) -> None:
    options = ("bids", "--participant-label", "01,sub-03", "--out", tmp_path / "o")
    content = json.loads(submit(project, *options, *HERE, "--json").stdout)
    assert content["by_status"] == {"completed": 2}
    assert [row["task"] for row in content["rows"]] == ["sub-01_T1w", "sub-03_T1w"]
    for row in content["rows"]:
        request = row["attempts"][0]["request"]
        assert request["walltime_s"] >= row["predicted_runtime_s"] > 1
        assert request["memory_bytes"] >= row["predicted_memory_bytes"] > 2e8
        copy = tmp_path / "o" / row["task"] / "copy"
        assert copy.read_bytes() == Path(row["image"]).read_bytes()
    absent = submit(project, *options[:1], "--participant-label", "9", *HERE, "--dry-run", code=2)
    assert absent.stderr == "voxcast: bids: no image of participant 9; choose from 01, 02, 03\n"


def test_a_server_gives_the_requests_of_the_model_here(
    project: Path, url: str, tmp_path: Path
) -> None:
    options = ("bids", *HERE)
    here = json.loads(submit(project, *options, "--dry-run", "--json").stdout)
    served = json.loads(submit(project, *options, "--model", url, "--dry-run", "--json").stdout)
    assert len(here["tasks"]) == len(served["tasks"]) == 3
    for ours, theirs in zip(here["tasks"], served["tasks"], strict=True):
        assert ours["requests"] == theirs["requests"]
        ours_s, theirs_s = (task["prediction"]["runtime_s"] for task in (ours, theirs))
        assert ours_s == pytest.approx(theirs_s, rel=1e-6)
    options = (*options, "--model", url, "--participant-label", "02", "--out", tmp_path / "o")
    assert json.loads(submit(project, *options, "--json").stdout)["by_status"] == {"completed": 1}
    assert (tmp_path / "o" / "sub-02_T1w" / "copy").is_file()


def test_parameters_are_those_of_the_prediction_and_of_the_run(
    project: Path, tmp_path: Path
) -> None:
    options = ("bids", "--participant-label", "01", *HERE, "--dry-run", "--json")
    plan = json.loads(submit(project, *options, "-p", "iterations=60").stdout)
    assert plan["parameters"] == {"iterations": 60}
    assert json.loads(submit(project, *options).stdout)["parameters"] == planted.PARAMETERS
    command = ("recommend", "--cluster", "local")
    head = "bids/sub-01/anat/sub-01_T1w.nii.gz"
    recommended = attempt(*command, head, "-p", "iterations=60", "--json", cwd=project)
    (tmp_path / "requests.json").write_text(recommended.stdout)
    of_file = (tmp_path / "requests.json", "--dry-run", "--json")
    assert json.loads(submit(project, *of_file).stdout)["parameters"] == {"iterations": 60}
    twice = submit(project, *of_file, "-p", "iterations=30", code=2)
    assert "requests.json: has its parameters; leave out --param" in twice.stderr
    refused = submit(project, *options, "-p", "iterations=many", code=2)
    assert "--param: iterations: must be int, not 'many'" in refused.stderr
