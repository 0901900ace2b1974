"""``voxcast doctor`` on this machine: its lines agree with what measuring and loading then do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from champions import register_champion
from commands import attempt
from measured import measured_run

VOXCAST = Path(sys.executable).with_name("voxcast")
PROJECT = Path(__file__).parents[3]
NAMES = {
    "Python", "packages", "packages: apps", "packages: train", "packages: serve", "cores",
    "memory of a run", "GPU", "temporary folder", "Slurm", "leftovers", "project",
}  # fmt: skip


def _doctor(*options: str, cwd: Path, code: int = 0, **variables: str) -> dict[str, Any]:
    result = attempt("doctor", "--json", *options, cwd=cwd, **variables)
    assert result.returncode == code, result.stdout + result.stderr
    return {check["name"]: check for check in json.loads(result.stdout)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(PROJECT / "params.yaml", folder)
    return folder


def test_the_lines_agree_with_what_a_run_does(tmp_path: Path) -> None:
    checks = _doctor(cwd=tmp_path)
    assert set(checks) >= NAMES
    assert checks["project"]["status"] == "absent"
    profile = measured_run([sys.executable, "-c", "pass"], tmp_path / "run")
    is_group = profile.memory_method.startswith("cgroup")
    assert checks["memory of a run"]["status"] == ("works" if is_group else "limited")
    if not is_group:
        assert profile.memory_method in checks["memory of a run"]["fact"]
    assert checks["cores"]["fact"].startswith(f"{len(os.sched_getaffinity(0))} of ")


def test_a_restriction_to_one_core_is_seen(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    code = (
        f"import os, sys; os.sched_setaffinity(0, {{{core}}}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(VOXCAST), "doctor"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    line = next(line for line in result.stdout.splitlines() if " cores " in line)
    assert line.split()[:3] == ["works" if os.cpu_count() == 1 else "limited", "cores", "1"]


def test_what_breaks_the_project_ends_in_exit_code_2(project: Path) -> None:
    checks = _doctor(cwd=project)
    assert checks["project"]["status"] == "works"
    assert checks["models"]["status"] == "absent"
    (project / "models").mkdir()
    (project / "models/champion.json").write_text("{")
    assert _doctor(cwd=project, code=2)["models"]["status"] == "broken"
    (project / "models/champion.json").unlink()
    (project / "params.yaml").write_text("images: [")
    assert _doctor(cwd=project, code=2)["project"]["status"] == "broken"


def test_the_versions_are_those_that_were_registered(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    register_champion(project, 8)
    check = _doctor(cwd=project)["models"]
    assert check["status"] == "works"
    assert check["fact"].startswith("versions: 1; champion: 1, of segment; MLflow: sqlite:///")
    (project / "models/v1/trained_on/segment.json").write_text("{}")
    check = _doctor(cwd=project)["models"]
    assert check["status"] == "limited"
    assert "application segment: is not the file that was registered" in check["fact"]
