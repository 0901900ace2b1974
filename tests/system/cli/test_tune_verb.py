"""``voxcast tune`` on a project: by several workers, and what the stage makes of the result."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from planted_search import TRIALS, search_project, with_clusters

ROOT = Path(__file__).parents[3]
VOXCAST = Path(sys.executable).with_name("voxcast")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return search_project(tmp_path)


def tune(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [VOXCAST, "tune", *arguments], cwd=project, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=300,
    )  # fmt: skip


def test_two_workers_tune_and_the_stage_takes_the_result(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = tune(project, "--workers", "2", "--json")
    assert completed.returncode == 0, completed.stderr
    content = json.loads(completed.stdout)
    assert content["finished"]
    rows = content["searches"]
    assert set(rows) == {"segment/extra_trees", "segment/boosted"}
    assert all(row["completed"] == TRIALS for row in rows.values())
    tuned = yaml.safe_load((project / "conf" / "tune" / "tuned.yaml").read_text())
    assert tuned["fixed"] == {
        "segment": {name: rows[f"segment/{name}"]["params"] for name in ("extra_trees", "boosted")}
    }
    again = tune(project, "--folder", "elsewhere", "--workers", "1", "--json")
    assert json.loads(again.stdout)["searches"] == rows

    params = yaml.safe_load((project / "params.yaml").read_text()) | {"tune": tuned}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(project)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert runpy.run_path(str(ROOT / "pipelines" / "tune.py"))["main"]() == 0
    leaderboard = pd.read_csv("results/tune/leaderboard.csv")
    assert {"extra_trees", "boosted"} <= set(leaderboard["family"])


def test_a_cluster_gets_a_line_that_starts_workers(project: Path) -> None:
    with_clusters(project)
    clusters = sorted(path.stem for path in (ROOT / "conf" / "cluster").glob("[!_]*.yaml"))
    cluster = next(name for name in clusters if name != "local")
    completed = tune(project, "--cluster", cluster, "--workers", "9")
    assert completed.returncode == 1, completed.stderr
    assert f"segment/extra_trees: 0 of {TRIALS} trials" in completed.stdout
    line = completed.stdout.splitlines()[-1]
    assert line.startswith("sbatch --array=1-9 --cpus-per-task=1 ")
    assert "exec voxcast tune --worker --project" in line


def test_a_folder_of_other_runs_is_refused(project: Path) -> None:
    folder = project / "data" / "tuning"
    folder.mkdir()
    (folder / "settings.json").write_text('{"trials": 3}')
    completed = tune(project)
    assert completed.returncode == 2
    assert completed.stderr == (
        "voxcast: data/tuning: is a search of other runs or settings; name another --folder, or "
        "remove it\n"
    )
