"""Attempts of real submissions as runs of a history, each once; and what a full disk changes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from followed import followed
from planted_tasks import COPY, MB, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm
from small_disk import fill, mounted, remount
from small_pool import SCRIPT, SmallPool, pool_cell, small_pool
from training_project import write_volume
from voxcast.cli import main
from voxcast.errors import TableError
from voxcast.features.training_table import batches_to_learn_from
from voxcast.jobs.collect import ProjectVolumes, collect_jobs, collected_text
from voxcast.jobs.follow import Follower
from voxcast.jobs.local import LocalExecutor
from voxcast.jobs.submission import Plan, Submission
from voxcast.jobs.worker import TODO
from voxcast.measure.host import host_class, host_facts
from voxcast.runs.store import load_history

VOLUMES = ProjectVolumes({}, 32)
# "slow" needs its second request, "bad" fails by itself.
BY_NAME = (
    'case "$1" in *slow*) if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 60; fi ;; '
    f"*bad*) exit 3 ;; esac; {COPY}"
)


def heads(folder: Path, *names: str) -> list[Path]:
    for seed, name in enumerate(names):
        write_volume(folder / name, seed)
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
    plan = plan_of(shell_app(BY_NAME), images, walltimes_s=(5.0, 100.0), prediction=None)
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
    assert stopped["runtime_s"] >= stopped["limit_s"] == 5.0
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


WRITE = 'printf done > "$2/done"'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as folder:
        yield folder


def worker(pool: SmallPool, disk: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "voxcast.jobs.worker", "--pool", str(pool.folder)]
    return subprocess.run(
        [*command, "--cpus", "1"], cwd=disk, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )  # fmt: skip


def submit(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Return what ``voxcast submit`` prints; its last line of errors where it fails."""
    assert main(["submit", *map(str, arguments)]) == code
    printed = capsys.readouterr()
    assert not (code and printed.out)
    return printed.err.splitlines()[-1] if code else printed.out


def planned(folder: Path, script: str, count: int) -> tuple[Path, Plan]:
    images = write_images(folder / "in", [f"{number}.nii" for number in range(count)])
    plan = plan_of(shell_app(script), images)
    path = folder / "plan.json"
    path.write_text(json.dumps(plan.to_record()))
    return path, plan


def resumed(capsys: pytest.CaptureFixture[str], disk: Path, folder: object, plan: Plan) -> None:
    """Go on with a submission, and check that every task has its results once."""
    text = submit(capsys, "--out", folder, "--json", "--poll", "1s")
    content = json.loads(text)
    assert content["by_status"] == {"completed": len(plan.tasks)}
    for row in content["rows"]:
        ends = [attempt["outcome"] for attempt in row["attempts"]]
        assert ends[-1] == "completed"
        assert set(ends[:-1]) <= {"node_failure"}  # lost, by no fault of its own
        assert (disk / "out" / row["task"] / "done").read_text() == "done"


def test_a_disk_that_fills_while_tasks_run_is_no_fault_of_theirs(
    tmp_path: Path, disk: Path, capsys
) -> None:
    filler = disk / "filler"
    # The first run of "1" takes all that is left, so that its measurement cannot be written.
    script = (
        f'case "$1" in */1.nii) if [ ! -e {tmp_path}/tried ]; then touch {tmp_path}/tried; '
        f"head -c 9000000 /dev/zero > {filler}; fi ;; esac; {WRITE}; true"
    )
    path, plan = planned(tmp_path, script, 4)
    command = (path, "--out", disk / "out", "--cluster", "local")
    line = submit(capsys, *command, "--throttle", "1", code=2)
    (folder,) = (disk / "out" / ".voxcast").iterdir()
    assert line == (
        f"voxcast: {folder}: no space left on the device; its runs were stopped; free some, "
        f"then `voxcast submit --out {folder}` continues"
    )
    filler.unlink()
    remount(disk, "size=30m")
    resumed(capsys, disk, folder, plan)


def test_a_worker_on_a_full_disk_ends_in_one_line(disk: Path) -> None:
    code = f"open({str(disk / 'large')!r}, 'wb').write(bytes(9_000_000))"
    pool = small_pool(disk / "pool", pool_cell(app=SCRIPT, code=code))
    ended = worker(pool, disk)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no space left on the device" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert [name.split(".")[1] for name in pool.names(TODO)] == ["0"]
    (disk / "large").unlink()
    remount(disk, "size=30m")
    again = worker(pool, disk)
    assert again.stdout == "1 runs recorded, 0 attempts failed, 0 cells wait\n", again.stderr
