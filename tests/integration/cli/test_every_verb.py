"""Every verb with the mistakes of users: one line that says what is wrong, and exit code 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest

import voxcast
from commands import attempt, refusal
from voxcast.cli import VERBS

VOXCAST = Path(sys.executable).with_name("voxcast")
# The least that each verb needs to get to its project; None: it needs none.
ARGUMENTS: dict[str, tuple[str, ...] | None] = {
    "app": ("list",),
    "audit": None,
    "doctor": None,
    "history": ("list",),
    "init": None,
    "inspect": (),
    "learn": (),
    "measure": ("head.nii", "--app", "tool"),
    "models": (),
    "phases": None,
    "predict": None,
    "recommend": ("head.nii",),
    "requests": None,
    "serve": (),
    "status": ("reference",),
    "submit": ("head.nii", "--out", "results"),
}


def test_the_table_has_every_verb() -> None:
    assert ARGUMENTS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", [v for v, words in ARGUMENTS.items() if words is not None])
def test_outside_a_project_all_verbs_say_the_same(verb: str, tmp_path: Path) -> None:
    line = refusal(verb, *(ARGUMENTS[verb] or ()), cwd=tmp_path)
    then = "cd into one, give --project DIR, or make one with `voxcast init`"
    assert line == f"{tmp_path}: no project here or above; {then}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("perdict", "perdict: unknown verb; did you mean predict?"),
        ("divine", "divine: unknown verb; see `voxcast --help`"),
        ("--project . predict a.nii", ".: not a project: it has no params.yaml"),
        ("models shwo", "shwo: unknown action; did you mean show?"),
        ("predict --app", "--app: needs a value; see `voxcast predict --help`"),
        ("predict a.nii --quantile", "--quantile: needs a value; see `voxcast predict --help`"),
        ("predict a.nii --explian", "--explian: unknown option; did you mean --explain?"),
        ("doctor --xyzzy", "--xyzzy: unknown option; see `voxcast doctor --help`"),
        ("doctor more", "more: one argument too many; see `voxcast doctor --help`"),
        ("serve --port -5", "--port: must be 1 to 65535, not -5"),
        ("serve --port 70000", "--port: must be 1 to 65535, not 70000"),
        ("serve --host=", "--host: is empty; leave it out for this machine only"),
        ("inspect gone.nii", "gone.nii: no such file"),
        ("predict a.nii --quantile 5", "--quantile: must be between 0.5 and 1, not 5.0"),
        ("inspect --project .", ".: not a project: it has no params.yaml"),
        ("inspect .", ".: is a folder, not a volume; name a .nii or .nii.gz file in it"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_what_is_meant(arguments: str, line: str, tmp_path: Path) -> None:
    assert refusal(*arguments.split(), cwd=tmp_path) == line


def test_a_name_that_is_no_text_is_printed(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/head\xff.nii"))
    voxels = nibabel.Nifti1Image(np.ones((4, 4, 4), np.int16), np.diag([2.0, 2.0, 2.0, 1.0]))
    path.write_bytes(voxels.to_bytes())
    completed = subprocess.run(
        [VOXCAST, "inspect", path, "--header-only"], capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"}, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert b"head\\udcff.nii" in completed.stdout


def test_a_folder_that_was_removed_is_no_project(tmp_path: Path) -> None:
    code = f"import os; os.rmdir({str(tmp_path)!r}); os.execv({str(VOXCAST)!r}, ['v', 'inspect'])"
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 2
    assert completed.stderr == "voxcast: the current folder no longer exists; cd into another\n"


def test_help_and_version(tmp_path: Path) -> None:
    result = attempt("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in VERBS)
    assert attempt("--version", cwd=tmp_path).stdout.strip() == f"voxcast {voxcast.__version__}"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help(verb: str, tmp_path: Path) -> None:
    result = attempt(verb, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert f"voxcast {verb}" in result.stdout


def test_no_verb_at_all_shows_the_help(tmp_path: Path) -> None:
    result = attempt(cwd=tmp_path)
    assert result.returncode == 2
    assert "predict" in result.stderr


def test_serve_refuses_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot listen" in refusal("serve", "--port", port, cwd=tmp_path)


def test_predict_without_a_registry_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").touch()
    line = refusal("predict", "head.nii.gz", cwd=tmp_path, MLFLOW_TRACKING_URI="")
    assert "voxcast learn" in line
