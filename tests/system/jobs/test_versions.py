"""Pools and plans of another release: one line that names it, and nothing is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import voxcast
from planted_tasks import COPY, plan_of, shell_app, write_images

HERE = voxcast.__version__


def started(code: list[str], *arguments: object, cwd: Path) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[3] / "src")
    return subprocess.Popen(
        [sys.executable, *code, *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the one line of a command that could not do anything."""
    printed, messages = process.communicate(timeout=120)
    assert (process.returncode, printed) == (2, ""), messages
    (line,) = messages.splitlines()
    return line


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"voxcast_plan": 99}, "version 99, not 4"),
        ({"tasks": [{"name": "a"}]}, "image is missing"),
        ({"limits": {"later": 1}}, "Limits has no field later"),
    ],
)
def test_a_plan_or_a_submission_of_another_release_names_it(
    changes: dict, problem: str, tmp_path: Path
) -> None:
    plan = plan_of(shell_app(COPY), write_images(tmp_path / "in", ["a.nii"]))
    content = plan.to_record() | {"voxcast_version": "99.0"} | changes
    (tmp_path / "plan.json").write_text(json.dumps(content))
    submission = tmp_path / "made" / "submission.json"
    submission.parent.mkdir()
    submission.write_text(json.dumps(content | {"out": "o", "executor": "local", "label": "l"}))
    this, problem = ["-m", "voxcast.cli"], f"a plan that cannot be read ({problem}), made by "
    then = f"voxcast 99.0; use that release, or make it again; this is voxcast {HERE}"
    requests = ("submit", "--requests", "plan.json", "--out", "out", "--cluster", "local")
    line = line_of(started(this, *requests, cwd=tmp_path))
    assert line == f"voxcast: plan.json: {problem}{then}"
    assert not (tmp_path / "out").exists()
    before = submission.read_bytes()
    for arguments in (("submit", "--resume", "made"), ("status", "made")):
        line = line_of(started(this, *arguments, cwd=tmp_path))
        assert line == f"voxcast: made/submission.json: {problem}{then}"
    assert submission.read_bytes() == before
    assert {path.name for path in submission.parent.iterdir()} == {submission.name}
