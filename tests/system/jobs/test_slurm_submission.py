"""Submissions on a real Slurm: every cause of an end, what follows, and daemons that fail."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from followed import followed, outcomes, running
from planted_tasks import COPY, HOLD, MB, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm, stopped_daemon
from small_pool import wait_for
from voxcast.cli import main
from voxcast.jobs.follow import Follower
from voxcast.jobs.slurm import SlurmExecutor
from voxcast.jobs.submission import SlurmOptions, Submission
from voxcast.jobs.task import Stop

pytestmark = pytest.mark.slurm
# The first attempt ends as the name of the image says; the next one copies.
BY_NAME = (
    'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; case "$1" in '
    "*late*|*unwanted*|*displaced*) sleep 600 ;; "
    f"*unable*) ulimit -v 1000000; exec {sys.executable} -c 'bytes(10**10)' ;; "
    "*bad*) echo no such atlas >&2; exit 3 ;; "
    f"esac; fi; {COPY}"
)
# Of a user, or of an outer job: options of commands, which must not change ours.
VARIABLES = {
    "SBATCH_ARRAY_INX": "2-5", "SBATCH_EXCLUSIVE": "1", "SBATCH_TIMELIMIT": "9",
    "SLURM_GPUS": "2", "SLURM_TIME_FORMAT": "relative", "SQUEUE_PARTITION": "high",
}  # fmt: skip
SOURCE = str(Path(__file__).parents[3] / "src")
HOSTILE = (
    "a b.nii.gz", "q'uo\"te.nii", "new\nline.nii", "$(touch pwned).nii", "&;|.nii", "-dash.nii",
    "`id`.nii", "back\\slash.nii", "täst-ü.nii",
)  # fmt: skip


class OnceRunning:
    """Acts on the job of a task when it first runs."""

    def __init__(self, **actions) -> None:
        self.actions = actions

    def __call__(self, follower: Follower) -> None:
        for name in list(self.actions):
            if job := running(follower, name):
                self.actions.pop(name)(job)


def test_hostile_names_pass_unchanged_and_one_array_runs_them_all(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    images = write_images(tmp_path / "$(touch pwned) in", HOSTILE)
    for number, image in enumerate(images):
        image.write_text(f"voxels {number}")
    plan = plan_of(shell_app(COPY), images, cpus=2, slurm=SlurmOptions(throttle=4))
    follower = followed(follower_of(plan))
    assert (len(follower.state.ended), follower.state.last_array) == (len(images), 1)
    for task, image in zip(plan.tasks, images, strict=True):
        folder = tmp_path / "out" / task.name
        assert (folder / "copy").read_text() == image.read_text()
        assert (folder / "threads").read_text() == "2\n2\n"
        assert "T" in follower.state.ended[task.name][0].facts["started_at"]  # as in ISO 8601
    script = follower.submission.script(1).read_text()
    assert f"#SBATCH --array=1-{len(images)}%4\n" in script
    assert not list(tmp_path.rglob("pwned"))
    assert not list((follower.submission.folder / "work").iterdir())


def test_the_cause_of_an_end_decides_what_follows(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("late", "unable", "bad", "unwanted")
    images = write_images(tmp_path / "in", [f"{name}.nii" for name in names])
    act = OnceRunning(
        late=lambda job: slurm.command("scontrol", "update", f"JobId={job}", "EndTime=now+1"),
        unwanted=lambda job: slurm.command("scancel", job),
    )
    follower = followed(follower_of(plan_of(shell_app(BY_NAME), images)), act)
    assert {name: outcomes(follower, name) for name in names} == {
        "late": ["timeout", "completed"], "unable": ["out_of_memory", "completed"],
        "bad": ["failed"], "unwanted": ["cancelled"],
    }  # fmt: skip
    first, longer = (attempt.request for attempt in follower.state.attempts("late"))
    assert (longer.walltime_s, longer.memory_bytes) == (240.0, first.memory_bytes)
    first, larger = (attempt.request for attempt in follower.state.attempts("unable"))
    assert (larger.walltime_s, larger.memory_bytes) == (first.walltime_s, 400 * MB)
    assert follower.state.next_step("bad") == Stop(False, "the application failed")
    assert "(no such atlas); given up: the application failed" in caplog.text
    assert {path.name for path in (tmp_path / "out").glob("[!.]*")} == {"late", "unable"}


def test_a_preempted_job_asks_for_the_same_again(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["displaced.nii"])
    preempt = OnceRunning(displaced=lambda _: slurm.command(
        "sbatch", "--partition=high", "--exclusive", f"--nodes={slurm.nodes}", "--time=1",
        "--mem=0", "--output=/dev/null", "--wrap=sleep 1",
    ))  # fmt: skip
    follower = followed(follower_of(plan_of(shell_app(BY_NAME), images)), preempt)
    assert outcomes(follower, "displaced") == ["preempted", "completed"]
    first, second = follower.state.attempts("displaced")
    assert first.request == second.request


def test_waiting_tasks_that_are_cancelled_as_one_line_are_all_ended(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", [f"{n}.nii" for n in range(5)])
    follower = follower_of(plan_of(shell_app(COPY), images, slurm=SlurmOptions(throttle=1)))
    slurm.command("scontrol", "update", "PartitionName=debug", "State=DOWN")
    try:
        follower.step()
        slurm.command("scancel", follower.state.arrays[1].job)
        followed(follower)
    finally:
        slurm.command("scontrol", "update", "PartitionName=debug", "State=UP")
    assert [outcomes(follower, str(n)) for n in range(5)] == [["cancelled"]] * 5


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
    slurm: PrivateSlurm, follower_of, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    follower = follower_of(plan_of(shell_app(f'{COPY}; echo run >> "$1.runs"'), images))
    follower.step()
    # As if its process had been killed between sbatch and the record of its answer.
    events = follower.submission.folder / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    assert '"submitted"' in lines[-1]
    events.write_text("".join(lines[:-1]) + lines[-1][:20])
    resumed = Submission.open(tmp_path / "out")
    follower = Follower(resumed, SlurmExecutor(resumed))
    follower._adopt(follower.executor)

    def status() -> str:
        assert main(["status", str(tmp_path / "out")]) == 0
        return capsys.readouterr().out

    # Nobody has settled what has ended.
    slurm.wait(lambda: "2 ended" in status(), "the accounting", 180)
    assert "submit --out" in status()
    followed(follower)
    assert "2 completed" in status()
    assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2
    assert [Path(f"{image}.runs").read_text() for image in images] == ["run\n"] * 2


def test_a_small_job_follows_in_place_of_the_command(
    slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    images = write_images(tmp_path / "in", ["large.nii", "small.nii"])
    for image, megabytes in zip(images, ("250", "20"), strict=True):
        image.write_text(megabytes)
    (tmp_path / "plan.json").write_text(json.dumps(plan_of(shell_app(HOLD), images).to_record()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    caplog.set_level("INFO", logger="voxcast")
    assert main(["submit", "plan.json", "--out", "out", "--detach"]) == 0
    assert "follows when jobs end" in caplog.text
    slurm.wait(lambda: not slurm.command("squeue", "-h").stdout.strip(), "the jobs", 180)
    submission = Submission.open(tmp_path / "out")
    follower = Follower(submission, SlurmExecutor(submission))
    logs = [log.read_text() for log in (submission.folder / "logs").glob("follow-*")]
    assert outcomes(follower, "large") == ["out_of_memory", "completed"], logs
    first, second = follower.state.ended["large"]
    assert first.facts["state"] == "FAILED"  # how memory ends where Slurm samples it
    assert second.attempt.request.memory_bytes == 400 * MB
    assert outcomes(follower, "small") == ["completed"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".voxcast", "large", "small"}


def test_a_lost_node_is_no_reason_to_ask_for_more(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["late.nii"])

    def kill(_: str) -> None:
        node = follower.current["late"].facts["node"]
        slurm.kill_node(node)
        # The controller notices by itself after SlurmdTimeout; here an operator tells it.
        slurm.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=crashed")

    follower = follower_of(plan_of(shell_app(BY_NAME), images))
    followed(follower, OnceRunning(late=kill))
    assert outcomes(follower, "late") == ["node_failure", "completed"]
    first, second = follower.state.ended["late"]
    assert first.attempt.request == second.attempt.request
    assert first.facts["node"] != second.facts["node"]
    slurm.start_daemon(first.facts["node"])


def test_the_controller_may_be_away_at_submission_and_while_jobs_run(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    gate = tmp_path / "gate"
    waiting = f"while [ ! -e {gate} ]; do sleep 0.2; done; {COPY}"
    follower = follower_of(plan_of(shell_app(waiting), images))
    with restarted(slurm):
        assert follower.step()
        assert follower.step()
        assert caplog.text.count("trying again") == 1
    followed(follower, until=lambda follower: bool(running(follower, "a")))
    with restarted(slurm):
        follower.step()
        gate.touch()
    followed(follower)
    assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2


@contextlib.contextmanager
def restarted(slurm: PrivateSlurm) -> Iterator[None]:
    """Stop the controller for the block, and wait until it answers again."""
    with stopped_daemon(slurm, "slurmctld"):
        yield
    slurm.wait(lambda: "UP" in slurm.command("scontrol", "ping", check=False).stdout, "slurmctld")


def test_without_accounting_scontrol_is_asked_and_that_is_said(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    with stopped_daemon(slurm, "slurmdbd"):
        follower = followed(follower_of(plan_of(shell_app(COPY), images)))
        assert [outcomes(follower, name) for name in ("a", "b")] == [["completed"]] * 2
    assert caplog.text.count("asking scontrol") == 1


def test_too_little_memory_is_followed_by_more_where_the_kernel_enforces_it(
    cgroup_slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "in", ["large.nii", "survived.nii"], "250")
    # A program is killed for memory, and in one task its script ends as if nothing had happened.
    held = HOLD.removeprefix("exec ")
    app = shell_app(f'{held} || case "$1" in *large*) exit 1 ;; esac; echo done > "$2/done"')
    follower = followed(follower_of(plan_of(app, images)))
    for name in ("large", "survived"):
        assert outcomes(follower, name) == ["out_of_memory", "completed"]
        first, second = follower.state.ended[name]
        assert first.facts["state"] == "OUT_OF_MEMORY"
        assert second.attempt.request.memory_bytes == 400 * MB
        assert (tmp_path / "out" / name / "done").is_file()


def test_an_sbatch_that_outlives_its_submitter_runs_nothing_twice(
    slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_images(tmp_path / "in", ["a.nii", "b.nii"])
    plan = plan_of(shell_app(f'{COPY}; echo run >> "$1.runs"'), images)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_record()))
    # Waits for a file before it submits, as a command does whose controller is busy.
    late, gate = tmp_path / "late" / "sbatch", tmp_path / "gate"
    late.parent.mkdir()
    begun, sbatch = tmp_path / "begun", shutil.which("sbatch")
    wait = f'touch {begun}; while [ ! -e {gate} ]; do sleep 0.1; done; exec {sbatch} "$@"'
    late.write_text(f"#!/bin/bash\n{wait}\n")
    late.chmod(0o755)
    path = f"{late.parent}:{os.environ['PATH']}"
    submitter = subprocess.Popen(
        [sys.executable, "-m", "voxcast.cli", "submit", "plan.json", "--out", "out"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE, "PATH": path},
    )  # fmt: skip
    wait_for(begun.exists)
    submitter.kill()
    submitter.wait()
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "--out", "out", "--poll", "1s"]) == 0
    gate.touch()
    name = f"--name={Submission.open(tmp_path / 'out').job_name(1)}"
    asked = ("sacct", "-X", "-n", "-P", name, "-o", "State")
    # The late job has no tasks any more.
    wait_for(lambda: {*slurm.command(*asked).stdout.split()} == {"FAILED"})
    assert [Path(f"{image}.runs").read_text() for image in images] == ["run\n"] * 2


def test_tasks_in_the_queue_get_the_memory_that_others_needed(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    lacking = '[ "$SLURM_MEM_PER_NODE" -ge 110 ] || {{ echo MemoryError >&2; exit 1; }}'
    images = write_images(tmp_path / "in", [f"{n:02}.nii" for n in range(16)])
    plan = plan_of(
        shell_app(f"sleep 2; {lacking}; {COPY}"), images, slurm=SlurmOptions(throttle=2)
    )
    state = followed(follower_of(plan)).state
    job = state.arrays[1].job
    listed = slurm.command("sacct", "-X", "-P", "-n", "-j", job, "-o", "JobID,ReqMem").stdout
    memory = dict(line.split("|") for line in listed.splitlines())
    raised = {number for array, number in state.raised if array == 1}
    assert raised
    for number, name in enumerate(state.arrays[1].names, 1):
        first = state.attempts(name)[0]
        wanted = ("completed", 150 * MB) if number in raised else ("out_of_memory", 100 * MB)
        assert (first.outcome, first.request.memory_bytes) == wanted
        assert memory[f"{job}_{number}"] == ("144M" if number in raised else "96M")
        assert state.attempts(name)[-1].outcome == "completed"
