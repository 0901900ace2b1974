"""Attempts of real submissions as runs of a history: each once, by what became of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest

from followed import followed
from planted_tasks import COPY, MB, plan_of, shell_app
from private_slurm import PrivateSlurm
from small_disk import fill, mounted
from voxcast.errors import TableError
from voxcast.features.training_runs import batches_to_learn_from
from voxcast.jobs.collect import ProjectVolumes, collect_jobs, collected_text
from voxcast.jobs.follow import Follower
from voxcast.jobs.local import LocalExecutor
from voxcast.jobs.submission import Plan, Submission
from voxcast.measure.host import host_class, host_facts
from voxcast.runs.store import load_history

VOLUMES = ProjectVolumes({}, 32)
# "slow" needs its second request, "bad" fails by itself.
SCRIPT = (
    'case "$1" in *slow*) if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 60; fi ;; '
    f"*bad*) exit 3 ;; esac; {COPY}"
)


def heads(folder: Path, *names: str) -> list[Path]:
    folder.mkdir()
    for seed, name in enumerate(names):
        voxels = np.random.default_rng(seed).integers(0, 50, (20, 22, 24)).astype(np.int16)
        voxels[6:14, 6:14, 6:14] += 500
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), folder / name)
    return [folder / name for name in names]


def submitted(plan: Plan, out: Path) -> Submission:
    submission = Submission.create(plan, out, "local")
    executor = LocalExecutor(submission)
    try:
        followed(Follower(submission, executor))
    finally:
        executor.close()
    return submission


def test_a_disk_that_fills_while_jobs_are_collected_loses_none(tmp_path: Path) -> None:
    images = heads(tmp_path / "in", "sub-01_T1w.nii", "sub-02_T1w.nii")
    submission = submitted(plan_of(shell_app(COPY), images), tmp_path / "out")
    with mounted(tmp_path / "disk") as disk:
        filler, batch = fill(disk), disk / "history" / "jobs"
        # No room for the images; for these, not for the runs; for a part of the runs.
        for free_bytes in (0, 28_000, 45_000):
            os.truncate(filler, filler.stat().st_size - free_bytes)
            with pytest.raises(TableError, match=r"jobs: no space left on the device; free some"):
                collect_jobs(submission, batch, VOLUMES)
            assert not list(batch.glob("**/runs.parquet"))
            fill(disk)
        filler.unlink()
        assert collect_jobs(submission, batch, VOLUMES)["completed"] == 2
        assert collect_jobs(submission, batch, VOLUMES)["on_record"] == 2
        assert len(load_history([batch])) == 2


def test_each_attempt_is_a_run_once(tmp_path: Path) -> None:
    images = heads(tmp_path / "in", "sub-01_T1w.nii", "sub-02_slow.nii", "sub-03_bad.nii")
    plan = plan_of(shell_app(SCRIPT), images, walltimes_s=(3.0, 100.0), prediction=None)
    submission = submitted(plan, tmp_path / "out")
    batch = tmp_path / "history" / "jobs"
    # Any process may collect it, from the folder alone.
    collected = collect_jobs(Submission.open(submission.folder), batch, VOLUMES)
    assert (collected["completed"], collected["censored"], collected["left_out"]) == (2, 1, 1)
    assert not collected["without_image"]
    again = collect_jobs(Submission.open(submission.folder), batch, VOLUMES)
    assert (again["part"], again["completed"], again["on_record"]) == (None, 0, 3)
    runs = load_history([batch])
    outcomes = runs.groupby("subject")["outcome"].apply(sorted).to_dict()
    assert outcomes == {"01": ["completed"], "02": ["completed", "timeout"]}
    here = host_facts()
    assert set(runs["host_id"]) == {here.host_id}
    assert set(runs["host_class"]) == {host_class(here)}
    stopped = runs[runs["outcome"] == "timeout"].iloc[0]
    assert stopped["runtime_s"] >= stopped["limit_s"] == 3.0
    assert (runs["peak_rss_bytes"] > 0).all()
    assert set(runs["source"]) == {"submit"}
    labels = json.loads(stopped["labels_json"])
    assert "predicted_runtime_s" not in labels  # it was asked by hand
    assert labels["task"] == "sub-02_slow"
    # A batch that `voxcast learn` learns from.
    assert batches_to_learn_from(tmp_path / "history", "planted") == {"jobs": 2}


def test_an_image_that_was_changed_since_tells_nothing(tmp_path: Path) -> None:
    images = heads(tmp_path / "in", "a.nii", "b.nii")
    submission = submitted(plan_of(shell_app(COPY), images), tmp_path / "out")
    os.utime(images[0], (time.time() + 60,) * 2)
    collected = collect_jobs(submission, tmp_path / "jobs", VOLUMES)
    assert collected["completed"] == 2
    (reason,) = collected["without_image"]
    assert reason == f"{images[0]}: was changed after a run on it had started"
    runs = load_history([tmp_path / "jobs"]).set_index("subject")
    assert runs["volume_id"]["a"] == ""
    assert len(runs["volume_id"]["b"]) == 16


@pytest.mark.slurm
def test_jobs_of_slurm_name_their_machine_and_their_memory_if_it_was_sampled(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    hold = "perl -e 'my $x = \"x\" x 5e7; sleep 8'"
    images = heads(tmp_path / "in", "long.nii", "short.nii")
    plan = plan_of(shell_app(f'case "$1" in *long*) {hold} ;; *) sleep 2 ;; esac; {COPY}'), images)
    follower = follower_of(plan)
    assert follower.executor.memory_sampling_s == 1.0  # as that Slurm is configured
    follower.executor.memory_sampling_s = 5.0  # as others may be
    submission = followed(follower).submission
    collected = collect_jobs(Submission.open(submission.folder), tmp_path / "jobs", VOLUMES)
    assert (collected["completed"], collected["censored"], collected["without_memory"]) == (
        2,
        1,
        1,
    )
    every = load_history([tmp_path / "jobs"])
    killed = every[every["outcome"] == "out_of_memory"].iloc[0]  # its first request was 100 MB
    assert (killed["subject"], killed["mem_limit_bytes"]) == ("long", 100 * MB)
    runs = every[every["outcome"] == "completed"].set_index("subject")
    here = host_facts()
    assert set(runs["cpu_model"]) == {here.cpu_model}
    assert (runs["host_id"].str.len() == 8).all()
    assert runs["host_class"].str.startswith(f"{here.cpu_model}, ").all()
    assert set(runs["node_type"]) == {"debug"}
    assert runs["memory_method"].to_dict() == {"long": "slurm_maxrss", "short": ""}
    assert runs["peak_rss_bytes"]["long"] > 5e7
    assert runs["started_at"].str.endswith("+00:00").all()
    assert collect_jobs(submission, tmp_path / "jobs", VOLUMES)["on_record"] == 3


def test_a_job_that_slurm_saw_for_no_second_is_not_called_failed(tmp_path: Path) -> None:
    images = heads(tmp_path / "in", "sub-01_T1w.nii")
    submission = submitted(plan_of(shell_app(COPY), images), tmp_path / "out")
    events = submission.folder / "events.jsonl"
    lines = list(map(json.loads, events.read_text().splitlines()))
    lines[-1]["attempt"]["runtime_s"] = 0.0  # as ElapsedRaw is
    events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    collected = collect_jobs(submission, tmp_path / "jobs", VOLUMES)
    assert (collected["part"], collected["left_out"], collected["too_short"]) == (None, 0, 1)
    assert collected_text(collected) == (
        "new in the history: no job; 1 completed within a second, too short for Slurm's clock"
    )
