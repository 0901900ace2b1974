"""The loop on a real Slurm: jobs become a history, a model, requests, and a better model."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from planted_tasks import MB, plan_of
from private_slurm import PrivateSlurm
from submitted_project import APP, SubmittedProject, voxcast
from voxcast.jobs.task import RequestSequence
from voxcast.runs.store import load_history

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
FIRST, LATER = 24, 30
SECONDS = 4.0  # the factor by which most jobs outlast Slurm's clock, which counts seconds
POLL = ("--poll", "1s")


def project_of(folder: Path, first: int) -> tuple[SubmittedProject, Path]:
    """Return a project, and the plan of its first jobs: one too short, two too small."""
    project = SubmittedProject(folder)
    project.slow_down(SECONDS)
    images = project.images(first)
    plan = plan_of(
        project.app, images, walltimes_s=(60.0, 180.0), memories_bytes=(400 * MB,), prediction=None
    )
    images[0].with_name(f"{images[0].name}.slow").touch()
    largest = sorted(range(1, first), key=lambda n: images[n].stat().st_size)[-2:]
    small = RequestSequence((60.0, 120.0), (30 * MB, 400 * MB), 1, partition="short")
    tasks = [
        # In an array with the others they would ask for as much as these.
        dataclasses.replace(task, requests=small) if n in largest else task
        for n, task in enumerate(plan.tasks)
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps(dataclasses.replace(plan, tasks=tuple(tasks)).to_record()))
    return project, path


def recorded(project: SubmittedProject) -> pd.DataFrame:
    runs = load_history([project.folder / "data/history/jobs"])
    assert runs["cell_key"].is_unique
    labels = pd.DataFrame(map(json.loads, runs["labels_json"]))
    return pd.concat([runs.reset_index(drop=True), labels], axis="columns")


def test_jobs_become_a_model_and_packed_jobs_a_better_one(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    project, plan = project_of(tmp_path / "project", FIRST)
    # A login node has no project: its jobs come into the history afterwards.
    login = tmp_path / "login"
    login.mkdir()
    submitted = voxcast(login, "submit", plan, "--out", "out", "--json", *POLL)
    assert submitted.returncode == 0, submitted.stderr
    content = json.loads(submitted.stdout)
    assert content["by_status"] == {"completed": FIRST}
    attempts = Counter(a["outcome"] for row in content["rows"] for a in row["attempts"])
    assert attempts == {"completed": FIRST, "timeout": 1, "out_of_memory": 2}
    status = voxcast(project.folder, "status", login / "out", "--collect")
    assert status.returncode == 0, status.stderr
    assert f"new in the history: {FIRST} completed and 3 killed" in status.stdout
    again = voxcast(project.folder, "status", login / "out", "--collect", "--json")
    assert json.loads(again.stdout)["collected"]["on_record"] == FIRST + 3
    none_yet = voxcast(project.folder, "status", "--drift")
    assert (none_yet.returncode, none_yet.stdout) == (2, "")
    first = voxcast(project.folder, "learn", "--retrain", "--app", APP)
    assert first.returncode == 0, first.stderr
    assert f"{APP}: ridge is champion, version 1: first" in first.stdout
    too_little = voxcast(project.folder, "status", "--drift")  # no job has a prediction yet
    assert too_little.returncode == 3, too_little.stderr

    # The application becomes slower, and the CPUs of its jobs are chosen together.
    project.slow_down(2.5 * SECONDS)
    images = project.images(LATER)
    cores = ("--nodes", "1x2")
    predicted = ("--app", APP, "--cluster", "private", *cores, "--out", "results")
    detached = voxcast(project.folder, "submit", *images, *predicted, "--detach")
    assert detached.returncode == 0, detached.stderr
    assert "follows when jobs end" in detached.stderr
    resumed = voxcast(project.folder, "submit", "--out", "results", "--json", *POLL)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["by_status"] == {"completed": LATER}
    slurm.wait(lambda: not slurm.command("squeue", "-h").stdout.strip(), "the follower", 300)
    runs = recorded(project)
    later = runs[runs["task"].isin(image.stem for image in images)]
    done = later[later["outcome"] == "completed"]
    assert sorted(done["task"]) == sorted(image.stem for image in images)
    assert done["cpu_s"].nunique() > LATER / 2
    assert done["peak_rss_bytes"].notna().all()
    assert set(done["model_version"]) == {"1"}
    assert set(done["cpus"]) == {1}

    drift = voxcast(project.folder, "status", "--drift", "--json")
    assert drift.returncode == 1, (drift.stdout, drift.stderr)
    told = json.loads(drift.stdout)[APP]
    assert told["subjects"] == LATER
    assert "the median of runtime" in told["drifted"]
    retrained = voxcast(project.folder, "learn", "--retrain", "--json")
    assert retrained.returncode == 0, retrained.stderr
    receipt = json.loads(retrained.stdout)[APP]
    assert receipt["new"]["subjects"] == LATER
    assert (receipt["registered"], receipt["reason"]) == (True, "better"), receipt["detail"]
    assert receipt["version"] == "2"
    back = voxcast(project.folder, "models", "rollback")
    assert back.stdout.startswith(f"version 1 is champion; {APP} as in version 1"), back.stderr
