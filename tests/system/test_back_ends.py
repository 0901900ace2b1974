"""The whole graph against PostgreSQL, a bucket and MLflow's server, all real, on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest

from production_servers import (
    ACCESS,
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
# Its time depends on the voxels, and on nothing else.
TOOL = f"""#!{sys.executable} -P
import argparse, pathlib, time
import nibabel
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--in", dest="image", required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--version", action="version", version="smooth 1.4.2")
args = parser.parse_args()
voxels = np.asanyarray(nibabel.load(args.image).dataobj).astype(np.float32)
for step, s_per_voxel in (("smooth", 8e-6), ("write", 1e-6)):
    print(f"START {{step}}", flush=True)
    end = time.process_time() + 0.1 + voxels.size * s_per_voxel
    while time.process_time() < end:
        np.tanh(voxels)
    print(f"END {{step}}", flush=True)
nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), args.out / "smooth.nii.gz")
"""
COMMAND = "smooth --in {image} --out {out} --threads {cpus}"
HEADS = 7
FAST = ("--app", "smooth", "--cpus", "1", "-S", "tune.families=[median,ridge]",
        "-S", "tune.trials=1", "-S", "tune.folds=2")  # fmt: skip
HEAD = "../heads/head00.nii.gz"
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@t")


def write_heads(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(HEADS):
        shape = rng.integers(20, 44, 3)
        voxels = rng.normal(100, 20, shape).astype(np.int16)
        image = nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 2.0, 1.0]))
        nibabel.save(image, folder / f"head{number:02d}.nii.gz")


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
        write_heads(self.project.parent / "heads")
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


def test_a_database_server_without_a_tracking_server(study: Study, servers: Servers) -> None:
    import psycopg

    postgres = servers.postgres
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(postgres.password_file))
        with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("CREATE DATABASE plain")
    plain = Study(study.project.with_name("plain"), plain_environment())
    study.run("cp", "-r", str(study.project), str(plain.project))
    plain.variables |= {
        "PGPASSFILE": str(postgres.password_file),
        "MLFLOW_TRACKING_URI": postgres.url.replace("/postgres?", "/plain?"),
    }
    plain.run("voxcast", "models", "--refresh")
    assert plain.stages_run() == ["register", "report"]
    # The same model, under a number that none has here or there.
    assert [row["version"] for row in plain.json("models")] == ["2", "1"]
    assert plain.predicted() == study.predicted() | {"model_version": "2"}
    # Artifacts are in the project, whatever the current folder is.
    assert list((plain.project / "mlruns").rglob("bundle.json"))
    assert not (plain.project / "mlflow.db").exists()
    plain.variables["PGPASSFILE"] = "/nowhere"
    plain.run("voxcast", "models", "pull", code=2)
    assert plain.messages.count("\n") == 1
    assert "the database server does not answer" in plain.messages


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
