"""``voxcast doctor``: it agrees with what a run does, and ``--clean`` leaves what is in use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from champions import register_champion
from commands import attempt
from measured import measured_run
from voxcast.files import process_lock
from voxcast.measure.local import QUIET_S, lock_file, project_leftovers
from voxcast.measure.processes import new_run_id
from voxcast.measure.runner import DRIVER_FILE

VOXCAST = Path(sys.executable).with_name("voxcast")
PROJECT = Path(__file__).parents[3]
NAMES = {
    "Python", "packages: apps", "packages: train", "packages: serve", "cores",
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


VOXCAST = Path(sys.executable).with_name("voxcast")
KEPT = (
    "data/runs/3f2b/run.json",
    "data/history/mine/part.parquet",
    "mlruns/1/models/m-1/artifacts/.partial-of-mlflow",
    "mlflow.db",
    "results/evaluate/metrics.json",
    "data/runs/.partial-now-1/app.log",
)
OLD = ("data/runs/.partial-old-1/out/volume.nii", "results/.partial-x.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in (*KEPT, *OLD, "params.yaml", "build/folds/a.npz", "build/site/index.html"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    long_ago = time.time() - 2 * QUIET_S
    for name in OLD:
        path = project / name
        while path != project and path.name not in ("data", "runs", "results"):
            os.utime(path, (long_ago, long_ago))
            path = path.parent
    abandoned = project / "data/campaigns/c/runs/.partial-just-killed"
    abandoned.mkdir(parents=True)
    machine, pid, started, rest = new_run_id().split("-")
    run_id = f"{machine}-{pid}-{int(started) - 1}-{rest}"
    (abandoned / DRIVER_FILE).write_text(json.dumps({"run_id": run_id, "groups": []}))
    (tmp_path / "tmp").mkdir()
    return project


def _clean(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VOXCAST, "doctor", "--clean", "--project", str(project), *options],
        env={**os.environ, "TMPDIR": str(project.parent / "tmp")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _files(project: Path) -> set[str]:
    return {str(p.relative_to(project)) for p in project.rglob("*") if p.is_file()}


def test_leftovers_go_and_the_rest_stays(folder: Path) -> None:
    result = _clean(folder)
    assert result.returncode == 0, result.stderr
    assert _files(folder) == {*KEPT, "params.yaml", "build/folds/a.npz", "build/site/index.html"}
    assert _clean(folder).stdout == "nothing to remove\n"


def test_the_folder_of_a_working_campaign_is_left_alone(folder: Path) -> None:
    later = time.time() + 2 * QUIET_S
    runs = folder / "data/runs"
    with process_lock(lock_file(runs), "another campaign", runs):
        names = {Path(found.name).name for found in project_leftovers(folder, later)}
        assert not any(name.startswith((".partial-old", ".partial-now")) for name in names)
    names = {Path(found.name).name for found in project_leftovers(folder, later)}
    assert {".partial-old-1", ".partial-now-1"} <= names
