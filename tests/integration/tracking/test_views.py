"""The description and the saved view of the experiment, as a running ``mlflow ui`` serves them."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from model_server import free_port, running_server
from registries import connected
from voxcast.tracking import runs
from voxcast.tracking.views import FINALS_FILTER, NOTE, NOTES, finals_link

OBJECTIVES = {"extra_trees": 0.2, "ridge": 0.1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a database with a search and two final runs; give the address."""
    project = tmp_path_factory.mktemp("tracked")
    uri = f"sqlite:///{project}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        session = connected(project)
        with runs.run(session, "campaign", "search") as campaign:
            for family in OBJECTIVES:
                tags = {"app": "segment", "family": family}
                with runs.run(session, "study", family, parent=campaign, tags=tags):
                    pass
        for family, objective in OBJECTIVES.items():
            with runs.run(
                session, "final", f"{family} final",
                tags={"app": "segment", "family": family}, metrics={"cv/objective": objective},
            ):  # fmt: skip
                pass
        mlflow.set_tracking_uri(None)
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri,
               "--port", str(port), "--workers", "1"]  # fmt: skip
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with running_server(command, port, project, environment, path="/health") as url:
        yield url


def answer(url: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if question is None else json.dumps(question).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        content: dict[str, Any] = json.load(reply)
    return content


def experiment(server: str) -> dict[str, Any]:
    name = urllib.parse.quote(runs.EXPERIMENT)
    url = f"{server}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}"
    by_name: dict[str, Any] = answer(url)["experiment"]
    return by_name


def tags_of(entity: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in entity["tags"]}


def test_the_saved_view_lists_the_finals_best_first(server: str) -> None:
    served = experiment(server)
    link = finals_link(served["experiment_id"], server)
    key = urllib.parse.parse_qs(link.partition("?")[2])["viewStateShareKey"][0]
    view = json.loads(tags_of(served)[f"mlflow.sharedViewState.{key}"])
    state = json.loads(view["state"])
    question = {
        "experiment_ids": [served["experiment_id"]],
        "filter": state["searchFilter"],
        "order_by": [f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"],
    }
    listed = answer(f"{server}/api/2.0/mlflow/runs/search", question)["runs"]
    assert [run["info"]["run_name"] for run in listed] == ["ridge final", "extra_trees final"]
    everything = answer(
        f"{server}/api/2.0/mlflow/runs/search", {"experiment_ids": [served["experiment_id"]]}
    )["runs"]
    assert len(everything) == 5
    for run in everything:
        tags = tags_of(run["data"])
        assert tags[NOTE] == NOTES[tags["kind"]]
    columns = [re.fullmatch(r"(\w+)\.`(.+)`", column) for column in state["selectedColumns"]]
    assert all(columns)
    shown = {match[2] for match in columns if match is not None}
    assert {"app", "family", "cv/objective", "test/cpu_s/mape"} <= shown


def test_the_experiment_says_what_its_runs_are(server: str) -> None:
    note = tags_of(experiment(server))[NOTE]
    assert FINALS_FILTER in note
    for word in ("campaign", "study", "trial", "final", "mape", "coverage", "objective"):
        assert word in note


def test_the_page_is_served_and_reads_saved_views(server: str) -> None:
    with urllib.request.urlopen(server, timeout=30) as reply:
        page = reply.read().decode()
    script = re.search(r'src="(?:\./)?(static-files/static/js/main\.\w+\.js)"', page)
    assert script is not None
    with urllib.request.urlopen(f"{server}/{script[1]}", timeout=30) as reply:
        code = reply.read().decode()
    assert '"viewStateShareKey"' in code
    assert '"mlflow.sharedViewState."' in code
    static = importlib.resources.files("mlflow") / "server/js/build/static/js"
    chunks = [Path(str(chunk)).read_text(encoding="utf-8") for chunk in static.iterdir()
              if chunk.name.endswith(".js")]  # fmt: skip
    # The format of a saved view, and the keys of its state.
    assert any("Invalid saved-view envelope" in chunk for chunk in chunks)
    assert any('["searchFilter","orderByKey","orderByAsc"' in chunk for chunk in chunks)
    assert any('["selectedColumns","columnOrder"' in chunk for chunk in chunks)


def test_a_description_of_the_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    connected(tmp_path)
    client = mlflow.MlflowClient()
    tracked = client.get_experiment_by_name(runs.EXPERIMENT)
    client.set_experiment_tag(tracked.experiment_id, NOTE, "heads of our scanner")
    connected(tmp_path)
    assert client.get_experiment(tracked.experiment_id).tags[NOTE] == "heads of our scanner"
