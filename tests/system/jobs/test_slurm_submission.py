"""Submissions on a real Slurm: every cause by which a job can end, and what follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from followed import followed, outcomes, running
from planted_tasks import COPY, HOLD, MB, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm
from voxcast.cli import main
from voxcast.jobs.follow import Follower
from voxcast.jobs.slurm import SlurmExecutor
from voxcast.jobs.submission import SlurmOptions, Submission
from voxcast.jobs.task import Stop

pytestmark = pytest.mark.slurm
# The first attempt waits to be stopped; the next one copies.
WAIT_FIRST = f'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 600; fi; {COPY}'
HOSTILE = (
    "a b.nii.gz", "q'uo\"te.nii", "new\nline.nii", "$(touch pwned).nii", "&;|.nii", "-dash.nii",
    "`id`.nii", "back\\slash.nii", "täst-ü.nii",
)  # fmt: skip


class Once:
    """Acts on the job of a task when it first runs."""

    def __init__(self, name: str, action) -> None:
        self.name = name
        self.action = action
        self.acted = False

    def __call__(self, follower: Follower) -> None:
        job = running(follower, self.name)
        if job and not self.acted:
            self.acted = True
            self.action(job)


def test_hostile_names_pass_unchanged_and_one_array_runs_them_all(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "$(touch pwned) in", HOSTILE)
    for number, image in enumerate(images):
        image.write_text(f"voxels {number}")
    plan = plan_of(shell_app(COPY), images, cpus=2, slurm=SlurmOptions(throttle=4))
    follower = followed(follower_of(plan))
    assert len(follower.state.ended) == len(images)
    assert follower.state.last_array == 1
    for task, image in zip(plan.tasks, images, strict=True):
        folder = tmp_path / "out" / task.name
        assert (folder / "copy").read_text() == image.read_text()
        assert (folder / "threads").read_text() == "2\n2\n"
    script = follower.submission.script(1).read_text()
    assert f"#SBATCH --array=1-{len(images)}%4\n" in script
    assert not list(tmp_path.rglob("pwned"))
    assert not list((follower.submission.folder / "work").iterdir())


def test_a_timeout_is_followed_by_more_time(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    shorten = Once("head", lambda job: slurm.command(
        "scontrol", "update", f"JobId={job}", "EndTime=now+1"
    ))  # fmt: skip
    follower = followed(follower_of(plan_of(shell_app(WAIT_FIRST), images)), shorten)
    assert outcomes(follower, "head") == ["timeout", "completed"]
    requests = [attempt.request for attempt in follower.state.attempts("head")]
    assert [request.walltime_s for request in requests] == [120.0, 240.0]
    assert requests[0].memory_bytes == requests[1].memory_bytes
    assert (tmp_path / "out" / "head" / "copy").is_file()


def test_too_little_memory_is_followed_by_more_where_slurm_samples(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["large.nii"], "250")
    follower = followed(follower_of(plan_of(shell_app(HOLD), images)))
    assert outcomes(follower, "large") == ["out_of_memory", "completed"]
    first, second = follower.state.ended["large"]
    assert first.facts["state"] == "FAILED"  # the other face of out of memory
    assert second.attempt.request.memory_bytes == 400 * MB
    assert second.attempt.request.walltime_s == first.attempt.request.walltime_s


def test_an_allocation_that_fails_in_the_application_is_followed_by_more_memory(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    too_large = f"ulimit -v 1000000; exec {sys.executable} -c 'bytes(10**10)'"
    script = f'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; {too_large}; fi; {COPY}'
    follower = followed(follower_of(plan_of(shell_app(script), images)))
    assert outcomes(follower, "head") == ["out_of_memory", "completed"]
    first, second = follower.state.attempts("head")
    assert second.request.memory_bytes > first.request.memory_bytes
    assert second.request.walltime_s == first.request.walltime_s


def test_a_preempted_job_asks_for_the_same_again(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    preempt = Once("head", lambda _: slurm.command(
        "sbatch", "--partition=high", "--exclusive", f"--nodes={slurm.nodes}", "--time=1",
        "--mem=0", "--output=/dev/null", "--wrap=sleep 1",
    ))  # fmt: skip
    follower = followed(follower_of(plan_of(shell_app(WAIT_FIRST), images)), preempt)
    assert outcomes(follower, "head") == ["preempted", "completed"]
    first, second = follower.state.attempts("head")
    assert first.request == second.request


def test_what_the_user_cancels_is_not_made_again(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii", "other.nii"])
    (tmp_path / "in" / "other.nii.tried").touch()
    cancel = Once("head", lambda job: slurm.command("scancel", job))
    follower = followed(follower_of(plan_of(shell_app(WAIT_FIRST), images)), cancel)
    assert outcomes(follower, "head") == ["cancelled"]
    assert outcomes(follower, "other") == ["completed"]
    assert not (tmp_path / "out" / "head").exists()


def test_waiting_tasks_that_are_cancelled_as_one_line_are_all_ended(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", [f"{n}.nii" for n in range(5)])
    follower = follower_of(
        plan_of(shell_app(COPY), images, cpus=4, slurm=SlurmOptions(throttle=1))
    )
    slurm.command("scontrol", "update", "PartitionName=debug", "State=DOWN")
    try:
        follower.step()
        slurm.command("scancel", follower.state.arrays[1].job)
        followed(follower)
    finally:
        slurm.command("scontrol", "update", "PartitionName=debug", "State=UP")
    assert [outcomes(follower, str(n)) for n in range(5)] == [["cancelled"]] * 5


def test_an_application_that_fails_is_reported_with_its_last_words(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    app = shell_app("echo no such atlas >&2; exit 3")
    follower = followed(follower_of(plan_of(app, images)))
    assert outcomes(follower, "head") == ["failed"]
    step = follower.state.next_step("head")
    assert step == Stop(completed=False, reason="the application failed")
    assert "(no such atlas); given up: the application failed" in caplog.text


def test_a_request_above_the_limit_of_the_partition_is_refused_in_one_line(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    plan = plan_of(shell_app(COPY), images, partition="short", walltimes_s=(600.0,))
    follower = follower_of(plan)
    assert not follower.step()
    assert follower.state.problems["head"] == (
        "sbatch: Requested time limit is invalid (missing or exceeds some limit); its limit is in "
        "`sinfo -s`; ask for less, or name another partition"
    )
    # Another process tries once more, as the limit may have changed.
    resumed = Follower(follower.submission, SlurmExecutor(follower.submission))
    assert not resumed.step()
    assert resumed.state.last_array == 2


def test_another_process_continues_and_nothing_is_made_twice(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    app = shell_app(f'{COPY}; echo run >> "$1.runs"')
    follower = follower_of(plan_of(app, images))
    follower.step()
    # As if its process had been killed between sbatch and the record of its answer.
    events = follower.submission.folder / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    assert '"submitted"' in lines[-1]
    events.write_text("".join(lines[:-1]) + lines[-1][:20])
    resumed = Submission.open(tmp_path / "out")
    follower = followed(Follower(resumed, SlurmExecutor(resumed)))
    assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2
    assert [Path(f"{image}.runs").read_text() for image in images] == ["run\n"] * 2


def test_status_tells_what_has_ended_and_is_not_settled(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    follower = follower_of(plan_of(shell_app(COPY), images))
    follower.step()
    slurm.wait(lambda: not slurm.command("squeue", "-h").stdout.strip(), "the jobs", 180)
    slurm.wait(lambda: "2 ended" in status_of(tmp_path / "out", capsys), "the accounting", 60)
    assert "submit --resume" in status_of(tmp_path / "out", capsys)
    followed(follower)
    assert "2 completed" in status_of(tmp_path / "out", capsys)


def status_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what ``voxcast status`` prints."""
    assert main(["status", str(folder)]) == 0
    return capsys.readouterr().out


def test_what_uses_no_cpu_is_stopped_and_tried_once_more(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["head.nii"])
    follower = followed(follower_of(plan_of(shell_app(WAIT_FIRST), images, stall_s=5.0)))
    assert outcomes(follower, "head") == ["stalled", "completed"]


def test_a_small_job_follows_in_place_of_the_command(slurm: PrivateSlurm, tmp_path: Path) -> None:
    images = write_images(tmp_path / "in", ["large.nii", "small.nii"])
    for image, megabytes in zip(images, ("250", "20"), strict=True):
        image.write_text(megabytes)
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(shell_app(HOLD), images).to_record()))
    command = [sys.executable, "-m", "voxcast.cli", "submit", "--requests", "plan.json"]
    source = str(Path(__file__).parents[3] / "src")
    completed = subprocess.run(
        [*command, "--out", "out", "--detach"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": source}, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert "follows when jobs end" in completed.stderr
    slurm.wait(lambda: not slurm.command("squeue", "-h").stdout.strip(), "the jobs", 180)
    submission = Submission.open(tmp_path / "out")
    follower = Follower(submission, SlurmExecutor(submission))
    logs = [log.read_text() for log in (submission.folder / "logs").glob("follow-*")]
    assert outcomes(follower, "large") == ["out_of_memory", "completed"], logs
    assert outcomes(follower, "small") == ["completed"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".voxcast", "large", "small"}
