"""A user with a tool and scans, in an empty folder, from a wheel: described, learned, asked."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from wheel_environment import PYPROJECT, wheel_environment

pytestmark = pytest.mark.slow
EXTRAS = PYPROJECT["optional-dependencies"]
# Its time depends on the voxels, and on nothing else.
TOOL = f"""#!{sys.executable} -P
import argparse, pathlib, random, sys, time
import nibabel
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("--in", dest="image", required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--version", action="version", version="smooth 1.4.2")
args = parser.parse_args()
voxels = np.asanyarray(nibabel.load(args.image).dataobj).astype(np.float32)
# On bright images it is erratic: nothing in the image tells its time.
erratic = random.Random(args.image).choice((0.2, 5.0)) if voxels.mean() > 500 else 1.0
for step, s_per_voxel in (("smooth", 8e-6), ("write", 1e-6)):
    print(f"START {{step}}", flush=True)
    end = time.process_time() + erratic * (0.1 + voxels.size * s_per_voxel)
    while time.process_time() < end:
        np.tanh(voxels)
    print(f"END {{step}}", flush=True)
nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), args.out / "smooth.nii.gz")
"""
COMMAND = "smooth --in {image} --out {out} --threads {cpus}"
FAST = ("-S", "tune.families=[median,voxels,ridge]", "-S", "tune.trials=1", "-S", "tune.folds=2")
HEADS = 9
LIMIT_S = 900


def write_heads(folder: Path, numbers: range, mean: float = 100.0) -> None:
    rng = np.random.default_rng(numbers.start)
    folder.mkdir()
    for number in numbers:
        shape = rng.integers(20, 44, 3)
        voxels = rng.normal(mean, 20, shape).astype(np.int16)
        image = nibabel.Nifti1Image(voxels, np.diag([2.0, 2.0, 2.0, 1.0]))
        nibabel.save(image, folder / f"head{number:02d}.nii.gz")


class User:
    """Somebody at a terminal in the project, with the tool and the wheel on PATH."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.project = folder, folder / "study"
        tool = folder / "bin" / "smooth"
        tool.parent.mkdir()
        tool.write_text(TOOL)
        tool.chmod(0o755)
        path = os.pathsep.join([str(tool.parent), str(binaries), os.environ["PATH"]])
        without = ("PYTHONPATH", "VOXCAST_PROJECT")
        kept = {k: v for k, v in os.environ.items() if k not in without and "MLFLOW" not in k}
        self.variables = {**kept, "PATH": path, "MLFLOW_DISABLE_TELEMETRY": "true"}
        self.binaries = binaries

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.binaries / "voxcast"), *arguments], cwd=self.project, env=self.variables,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        started = self.start(*arguments)
        out, error = started.communicate(timeout=LIMIT_S)
        assert started.returncode == code, f"{arguments}\n{out}\n{error}"
        return subprocess.CompletedProcess(arguments, code, out, error)

    def learn(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("learn", *arguments, "--app", "smooth", "--cpus", "1", *FAST, code=code)

    def records(self) -> dict[str, str]:
        """Return the start of every recorded run by its key."""
        paths = (self.project / "data/measured/cpu").glob("[0-9a-f]*/run.json")
        runs = {path.parent.name: json.loads(path.read_text())["run"] for path in paths}
        return {key: run["started_at"] for key, run in runs.items()}


def lines_of(summary: str) -> dict[str, str]:
    return {line.split(maxsplit=1)[0]: line[12:].strip() for line in summary.splitlines()}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Return a user who has learned the tool on some heads; the first attempt was interrupted."""
    folder = tmp_path_factory.mktemp("away")
    needed = [*PYPROJECT["dependencies"], *EXTRAS["train"], *EXTRAS["serve"]]
    user = User(folder, wheel_environment(tmp_path_factory.mktemp("wheel"), needed) / "bin")
    write_heads(folder / "heads", range(HEADS))
    (folder / "heads" / "broken.nii.gz").write_text("no image")
    user.project.mkdir()
    refused = user.run("learn", "../heads", "--app", "smooth", code=2).stderr
    assert "make one with `voxcast init`" in refused
    user.run("init")
    described = user.run(
        "app", "new", "smooth", "--command", COMMAND, "--version-command", "smooth --version",
        "--image", "../heads/head00.nii.gz",
    )  # fmt: skip
    assert "stops you" not in described.stdout
    assert "costs you" not in described.stdout
    begun = user.start("learn", "../heads", "--app", "smooth", "--cpus", "1", *FAST)
    while len(user.records()) < 2 and begun.poll() is None:
        time.sleep(0.1)
    begun.send_signal(signal.SIGINT)
    _, error = begun.communicate(timeout=LIMIT_S)
    assert begun.returncode == 130, error
    assert "finished runs are kept, `voxcast learn ../heads --app smooth" in error
    before = user.records()
    assert len(before) >= 2
    user.first = user.learn("../heads")
    after = user.records()
    assert before.items() <= after.items(), "a finished run was measured again"
    return user


def test_nothing_is_left_to_do(user: User) -> None:
    ended = subprocess.run(
        [user.binaries / "python", "-m", "dvc", "repro"], cwd=user.project, env=user.variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Data and pipelines are up to date." in ended.stdout
    before = user.records()
    again = user.run("learn")
    assert user.records() == before
    assert again.stdout == user.first.stdout


def test_the_next_command_predicts_an_image(user: User) -> None:
    _, *arguments = shlex.split(lines_of(user.first.stdout)["next"])
    assert arguments[-2:] == ["--app", "smooth"]
    (entry,) = json.loads(user.run(*arguments, "--json").stdout)
    for prediction in entry["predictions"]:
        assert 0 < prediction["runtime_s_median"] <= prediction["runtime_s_upper"]


def receipt_of(user: User) -> dict:
    receipt = json.loads((user.project / "results/register/receipt.json").read_text())
    return receipt["apps"]["smooth"]


def learned_subjects(user: User) -> set[str]:
    sides = ("train", "test")
    tables = [pd.read_parquet(user.project / f"data/features/{side}.parquet") for side in sides]
    return set(pd.concat(tables)["subject"])


def test_a_second_image_set_adds_to_the_first(user: User) -> None:
    first = learned_subjects(user)
    assert len(first) == HEADS
    write_heads(user.folder / "more", range(20, 24))
    learned = user.learn("../more")
    assert "4 of 4 usable" in learned.stderr
    assert learned_subjects(user) == first | {f"head{number}" for number in range(20, 24)}
    assert receipt_of(user)["training"]["subjects"] > 0.5 * HEADS
