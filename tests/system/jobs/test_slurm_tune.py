"""``voxcast tune --submit`` on a real Slurm: its jobs make all trials, as processes here do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planted_search import ROOT, TRIALS, search_project, with_clusters
from private_slurm import PrivateSlurm
from voxcast.allocation.site import OTHER_BYTES

pytestmark = pytest.mark.slurm
JOBS = (
    "--cluster", "private", "--submit", "--mem", "1GiB", "--time", "10min", "--poll", "1s",
)  # fmt: skip


def tune(project: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "voxcast.cli", "tune", *arguments],
        cwd=project, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    return ended


def test_jobs_make_all_trials_and_choose_as_processes_here(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    project = search_project(tmp_path)
    with_clusters(project)
    content = json.loads(tune(project, *JOBS, "--workers", "2", "--json").stdout)
    assert content["finished"]
    rows = content["searches"]
    assert all(row["completed"] == TRIALS for row in rows.values())
    arrays = project / "data" / "tuning" / "jobs" / "arrays"
    script = (arrays / "0001.sbatch").read_text()
    assert "#SBATCH --array=1-2\n" in script
    # This Slurm adds up resident pages, those of mapped files too.
    assert f"#SBATCH --mem={1024 + OTHER_BYTES // 2**20}M\n" in script
    here = json.loads(tune(project, "--folder", "here", "--workers", "1", "--json").stdout)
    assert here["searches"] == rows
    tune(project, *JOBS)
    assert [path.name for path in arrays.glob("*.sbatch")] == ["0001.sbatch"]


def test_a_job_that_no_partition_takes_is_refused_before_anything_is_submitted(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    project = search_project(tmp_path)
    with_clusters(project)
    options = [*JOBS[:4], "1TiB", *JOBS[5:]]
    refused = tune(project, *options, code=2)
    assert "no partition takes a job of 1 CPU" in refused.stderr.splitlines()[-1]
    assert not (project / "data" / "tuning" / "jobs").exists()
