"""What the mission's rows share, made once a run: a project, its server, small histories."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from commands import BIN, clone, environment, run, voxcast
from model_server import free_port, running_server
from private_slurm import PACKAGES, PrivateSlurm, missing_programs
from shell_campaigns import write_campaign
from training_project import write_volume

# The graph on two small heads, beside recorded runs, with few families of models.
OVERRIDES = (
    "campaign=tiny", "features.history=[reference]", "images.subjects=2", "images.seed=77",
    "images.axis_voxels=[24,64]", "images.voxels=[60000,80000,200000]", "app=[ants_segment]",
    "device.cpu.cpus=[1]", "tune.trials=1", "tune.folds=2", "tune.budget_s=60",
    "tune.families=[median,ridge,cnn]",
)  # fmt: skip
SUBJECTS = [f"r{number:04d}" for number in range(1, 49)]  # in the history of the graph
STUDIED_RUNS = 10  # of each scale and network, in the history of the studies


def of_few_subjects(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one application on some of the subjects."""
    return runs[(runs["app"] == "ants_segment") & runs["subject"].isin(SUBJECTS)]


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose graph was killed by `kill -9` while it measured, and then run to its end."""
    folder = clone(tmp_path_factory.mktemp("graph") / "project", of_few_subjects)
    run(folder, sys.executable, "-m", "voxcast.config", *OVERRIDES)
    begun = subprocess.Popen(
        [str(BIN / "dvc"), "repro"], cwd=folder, env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    measured = folder / "data/measured/cpu"
    while not any(measured.glob("[0-9a-f]*/run.json")) and begun.poll() is None:
        time.sleep(0.1)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    # By content: DVC copies files that are hard links before a stage runs.
    finished = {path: path.read_bytes() for path in measured.glob("[0-9a-f]*/run.json")}
    assert finished, "the graph ended before anything was measured"
    run(folder, BIN / "dvc", "repro")
    for path, content in finished.items():
        assert path.read_bytes() == content, "a finished run was measured again"
    return folder


@pytest.fixture(scope="session")
def image(graph: Path) -> Path:
    """An image of the project."""
    return graph / "data/images/sub-0001/anat/sub-0001_T1w.nii.gz"


@pytest.fixture(scope="session")
def server(graph: Path) -> Iterator[str]:
    """Return the address of `voxcast serve` on loopback."""
    port = free_port()
    command = [str(BIN / "voxcast"), "serve", "--port", str(port)]
    with running_server(command, port, graph, environment()) as url:
        yield url


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose history is some recorded runs of one application, for the studies."""
    kept: dict[tuple[str, str], int] = {}

    def wanted(row: pd.Series) -> bool:
        group = row["scale"], json.loads(row["parameters_json"])["network"]
        kept[group] = kept.get(group, 0) + 1
        return kept[group] <= STUDIED_RUNS

    def some(runs: pd.DataFrame) -> pd.DataFrame:
        runs = runs[runs["app"] == "dnn_train"]
        return runs[[wanted(row) for _, row in runs.iterrows()]]

    return clone(tmp_path_factory.mktemp("studied") / "project", some)


@pytest.fixture
def study(studied: Path) -> Callable[[str], dict[str, Any]]:
    """Return a function that runs a study of the small history, or takes its results."""

    def results(name: str) -> dict[str, Any]:
        path = studied / f"results/studies/{name}.json"
        marker = path.with_suffix(".made")
        if not marker.exists():
            run(studied, sys.executable, "studies/study.py", name, OMP_NUM_THREADS="1")
            marker.touch()
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    return results


@pytest.fixture(scope="session")
def slurm_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    """A private Slurm for all files of tests, or a skip.

    Three virtual nodes with accounting; Slurm's sampling enforces memory.
    """
    if missing := missing_programs():
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): apt-get install {PACKAGES}")
    with PrivateSlurm(tmp_path_factory.mktemp("slurm"), gpus=1) as private:
        yield private


@pytest.fixture(scope="module")
def slurm(slurm_of_all: PrivateSlurm) -> Iterator[PrivateSlurm]:
    """The private Slurm, used by the commands of this process; no other file has jobs in it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in slurm_of_all.environment.items():
            patch.setenv(name, value)
        yield slurm_of_all
        slurm_of_all.clear()


@pytest.fixture(scope="session")
def shell_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project from `voxcast init` with one image, and campaigns that do not read it.

    The time of the application is set by its parameters: a pause for each of some cycles.
    """
    folder = tmp_path_factory.mktemp("shell") / "project"
    voxcast("init", folder)
    write_volume(folder / "heads/sub-1_T1w.nii.gz", 1)
    images = (folder / "conf/images/bids.yaml").read_text().replace("???", "heads")
    (folder / "conf/images/one.yaml").write_text(images)
    script = 'for n in $(seq "$0"); do sleep "$1"; done'
    sweeps = {
        "down": {"scale": "scaled_down", "parameters": {"pause": [0.01, 0.02]}, "cpus": [1]},
        "full": {"scale": "full_scale", "parameters": {"cycles": [10, 20]}, "cpus": [1],
                 "repeats": 2},
    }  # fmt: skip
    write_campaign(
        folder, "pauses", script, ["{cycles}", "{pause}"], sweeps,
        parameters={"cycles": 20, "pause": 0.01}, scaled_down={"cycles": 1},
        ranges={"cycles": [10, 30]},
    )  # fmt: skip
    return folder
