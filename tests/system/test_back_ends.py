"""The whole graph against PostgreSQL, a bucket and MLflow's server, all real, on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_own_application import COMMAND, TOOL, write_heads

from model_server import free_port, running_server
from production_servers import (
    ACCESS,
    BINARIES,
    BUCKET,
    Servers,
    missing,
    plain_environment,
    production_servers,
)

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}"),
]
HEADS = 7
START_S = 300.0  # at most, of a server
FAST = ("--app", "smooth", "--cpus", "1", "-S", "tune.families=[median,ridge]",
        "-S", "tune.trials=1", "-S", "tune.folds=2")  # fmt: skip
HEAD = "../heads/head00.nii.gz"
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@t")


class Study:
    """A project, and a user at a terminal in it."""

    def __init__(self, project: Path, variables: dict[str, str]) -> None:
        self.project = project
        tools = project.parent / "bin"
        path = f"{tools}{os.pathsep}{variables['PATH']}"
        self.variables = {**variables, "PATH": path}

    def run(self, *command: str, code: int = 0, **variables: str) -> str:
        """Run a command and return what it prints; its messages are in `messages`."""
        ended = subprocess.run(
            command, cwd=self.project, env={**self.variables, **variables}, capture_output=True,
            text=True, check=False, timeout=900,
        )  # fmt: skip
        self.messages = ended.stderr
        assert ended.returncode == code, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def json(self, *command: str):
        return json.loads(self.run("voxcast", *command, "--json"))

    def learn(self) -> None:
        """Describe the tool, measure it on some heads, and learn from that."""
        tool = self.project.parent / "bin" / "smooth"
        tool.parent.mkdir()
        tool.write_text(TOOL)
        tool.chmod(0o755)
        write_heads(self.project.parent / "heads", range(HEADS))
        self.project.mkdir()
        self.run("voxcast", "init")
        self.run("voxcast", "app", "new", "smooth", "--command", COMMAND,
                 "--version-command", "smooth --version", "--image", HEAD)  # fmt: skip
        self.run("voxcast", "learn", "../heads", *FAST)
        # Of this machine, and in the project alone: others would answer for it otherwise.
        (self.project / "data/machines.json").unlink()

    def learn_another(self) -> None:
        """Learn other families, and register the best of them whatever the rule says."""
        families = "tune.families=[median,voxels]"
        self.run("voxcast", "learn", "../heads", *FAST, "-S", families)
        if len(self.json("models")) == 1:
            assert self.json("models", "promote", "--app", "smooth")["registered"]
        (self.project / "data/machines.json").unlink()

    def stages_run(self) -> list[str]:
        """Bring the graph up to date, and return the stages that were run for it."""
        lines = self.run("dvc", "repro").splitlines()
        return [line.split("'")[1] for line in lines if line.startswith("Running stage")]

    def predicted(self, *options: str) -> dict:
        (entry,) = self.json("predict", HEAD, *options)
        (prediction,) = entry["predictions"]
        return prediction


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with production_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


@pytest.fixture(scope="module")
def study(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return a project that was learned in, with nothing but the address of MLflow's server."""
    variables = {**plain_environment(), "MLFLOW_TRACKING_URI": servers.mlflow}
    study = Study(tmp_path_factory.mktemp("on-servers") / "study", variables)
    study.learn()
    return study


def test_the_graph_leaves_its_runs_and_models_on_the_server(
    study: Study, servers: Servers
) -> None:
    assert not (study.project / "mlflow.db").exists()
    receipt = json.loads((study.project / "results/register/receipt.json").read_text())
    assert receipt["version"] == "1"
    assert receipt["apps"]["smooth"]["registered"]
    (row,) = study.json("models")
    assert (row["version"], row["champion"], row["promoted"]) == ("1", True, "smooth")
    keys = servers.keys("artifacts/")
    assert any(key.endswith("/artifacts/artifacts/bundle/bundle.json") for key in keys)
    assert not list((study.project / "mlruns").rglob("bundle.json"))
    marker = json.loads((study.project / "models/registered.json").read_text())
    assert marker["tracking_uri"] == servers.mlflow
    study.run("voxcast", "models", "--refresh")
    assert "up to date" in study.run("dvc", "repro")


def test_the_server_of_mlflow_answers_to_the_names_of_compose_alone(servers: Servers) -> None:
    address = f"{servers.mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    for host, code in (("mlflow:5000", 200), ("elsewhere.example.org", 403)):
        request = urllib.request.Request(address, headers={"Host": host})
        try:
            answered = urllib.request.urlopen(request, timeout=60).status
        except urllib.error.HTTPError as refusal:
            answered = refusal.code
        assert answered == code, host


def test_doctor_reads_the_registry(study: Study, servers: Servers) -> None:
    checks = {check["name"]: check for check in study.json("doctor")}
    assert checks["models"]["status"] == "works"
    assert servers.mlflow in checks["models"]["fact"]


def test_the_champion_predicts_and_is_served(study: Study) -> None:
    here = study.predicted()
    assert 0 < here["runtime_s_lower"] <= here["runtime_s_median"] <= here["runtime_s_upper"]
    assert study.json("recommend", HEAD, "--deadline", "1h")
    port = free_port()
    words = [str(BINARIES / "voxcast"), "serve", "--port", str(port)]
    with running_server(words, port, study.project, study.variables, START_S, "/health") as url:
        asked = study.predicted("--model", url, "--app", "smooth", "--cpus", "1")
        assert asked == pytest.approx(here)


def test_another_clone_pulls_the_data_and_asks_the_same_champion(
    study: Study, servers: Servers
) -> None:
    for command in (
        ("git", "init", "-q"),
        ("dvc", "remote", "add", "-d", "bucket", f"s3://{BUCKET}/dvc"),
        ("dvc", "remote", "modify", "bucket", "endpointurl", servers.s3),
        ("git", "add", "-A"),
        ("git", *AUTHOR, "commit", "-qm", "learned"),
    ):
        study.run(*command)
    study.run("dvc", "push", **ACCESS)
    assert servers.keys("dvc/")
    clone = Study(study.project.with_name("clone"), study.variables)
    study.run("git", "clone", "-q", str(study.project), str(clone.project))
    clone.run("dvc", "pull", "--allow-missing", **ACCESS)
    for folder in ("data/runs/cpu", "data/features", "data/models"):
        first, second = (
            {p.relative_to(s.project): p.read_bytes()
             for p in (s.project / folder).rglob("*") if p.is_file()}
            for s in (study, clone)
        )  # fmt: skip
        assert first == second != {}
    clone.run("voxcast", "models", "pull")
    assert clone.predicted() == pytest.approx(study.predicted())
    # Nothing is measured or learned again; the clone only makes sure of the registry.
    clone.run("voxcast", "models", "--refresh")
    assert clone.stages_run() == ["register", "report"]
    receipt = json.loads((clone.project / "results/register/receipt.json").read_text())
    assert receipt["apps"]["smooth"]["reason"] == "unchanged"
    for path in (*clone.project.rglob("*.json"), clone.project / ".dvc/config"):
        assert ACCESS["AWS_SECRET_ACCESS_KEY"].encode() not in path.read_bytes()


def test_versions_are_promoted_compared_and_rolled_back(study: Study) -> None:
    study.learn_another()
    compared = study.json("models", "compare", "2", "1")
    assert compared["apps"]["smooth"]["gain"]["subjects"] == HEADS  # none is kept apart
    assert study.json("models", "rollback")["to_version"] == "1"
    assert [(r["version"], r["champion"]) for r in study.json("models")] == [
        ("2", False), ("1", True),
    ]  # fmt: skip
    refused = study.run("voxcast", "models", "rollback", "9", code=2)
    assert not refused
    assert "version 9: no such version; the model has 2, 1" in study.messages


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return a project that was learned in with its database and folder of artifacts."""
    study = Study(tmp_path_factory.mktemp("local") / "study", plain_environment())
    study.learn()
    return study


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


def test_a_copy_of_a_project_goes_on_by_itself(local: Study) -> None:
    here = local.predicted()
    before = contents(local.project)
    copy = Study(local.project.with_name("copy"), local.variables)
    local.run("cp", "-r", str(local.project), str(copy.project))
    copy.run("voxcast", "models", "--refresh")
    assert "up to date" in copy.run("dvc", "repro")  # nothing is run again
    copy.learn_another()
    assert copy.json("models", "compare", "2", "1")["apps"]["smooth"]["gain"]
    assert copy.json("models", "rollback")["version"] == "1"
    assert copy.predicted() == here
    # Caches of the interpreter and of DVC apart, the original is what it was.
    after = contents(local.project)
    assert {p: after.get(p) for p in before if ".dvc" not in p.parts} == {
        p: content for p, content in before.items() if ".dvc" not in p.parts
    }

    moved = Study(local.project.with_name("moved"), local.variables)
    copy.project.rename(moved.project)
    assert len(moved.json("models")) == 2
    assert moved.predicted() == here
    assert "up to date" in moved.run("dvc", "repro")
    assert not copy.project.exists()


def test_a_database_server_without_a_tracking_server(local: Study, servers: Servers) -> None:
    import psycopg

    postgres, variables = servers.postgres, local.variables
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(postgres.password_file))
        with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("CREATE DATABASE plain")
    study = Study(local.project.with_name("plain"), variables)
    local.run("cp", "-r", str(local.project), str(study.project))
    study.variables |= {
        "PGPASSFILE": str(postgres.password_file),
        "MLFLOW_TRACKING_URI": postgres.url.replace("/postgres?", "/plain?"),
    }
    before = (study.project / "mlflow.db").read_bytes()
    study.run("voxcast", "models", "--refresh")
    assert study.stages_run() == ["register", "report"]
    # The same model, under a number that none has here or there.
    assert [row["version"] for row in study.json("models")] == ["2", "1"]
    assert study.predicted() == local.predicted() | {"model_version": "2"}
    checks = {check["name"]: check for check in study.json("doctor")}
    assert checks["models"]["status"] == "works"
    # Artifacts are in the project, whatever the current folder is; its own database is not used.
    assert list((study.project / "mlruns").rglob("bundle.json"))
    assert (study.project / "mlflow.db").read_bytes() == before
    study.run("voxcast", "models", "promote", "--app", "smooth", "--project", ".")
    study.variables["PGPASSFILE"] = "/nowhere"
    study.run("voxcast", "models", "pull", code=2)
    assert study.messages.count("\n") == 1
    assert "the database server does not answer" in study.messages
