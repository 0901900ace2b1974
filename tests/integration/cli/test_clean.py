"""``voxcast doctor --clean`` removes leftovers; what is measured or in use stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from voxcast.files import process_lock
from voxcast.measure.local import QUIET_S, lock_file, project_leftovers
from voxcast.measure.processes import new_run_id
from voxcast.measure.runner import DRIVER_FILE

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
