"""The folder of a submission: its record, its results, and who follows it."""

import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from followed import followed, outcomes
from planted_tasks import COPY, HOLD, MB, PLANTED, plan_of, shell_app, write_images
from voxcast.errors import ConfigError, RunError
from voxcast.jobs import claim
from voxcast.jobs.claim import CLAIM_FILE, EXPIRES_S, ClaimLostError, claimed
from voxcast.jobs.follow import Follower
from voxcast.jobs.local import LocalExecutor
from voxcast.jobs.script import OUT_NAME
from voxcast.jobs.submission import SUBMISSIONS, Submission


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    plan = plan_of(shell_app("true"), write_images(tmp_path / "in", ["a.nii"]))
    return Submission.create(plan, tmp_path / "out", "local")


def test_a_line_that_was_cut_off_is_left_out_and_the_next_is_whole(submission: Submission) -> None:
    submission.record({"event": "first"})
    path = submission.folder / "events.jsonl"
    path.write_text(path.read_text() + '\n{"event": "cut o')
    submission.record({"event": "second"})
    assert [event["event"] for event in submission.events()] == ["first", "second"]


def test_results_never_replace_what_came_in_between(submission: Submission) -> None:
    results = submission.files(1).attempt_folder(1) / "out"
    results.mkdir(parents=True)
    (results / "new").touch()
    target = submission.out / "a"
    target.mkdir()
    (target / "other").touch()
    assert "is there already; its results stay in" in submission.publish("a", 1, 1)
    assert (results / "new").exists()
    (target / "other").unlink()  # an empty folder is no result
    assert submission.publish("a", 1, 1) == ""
    assert (target / "new").exists()
    assert submission.publish("a", 1, 1) == ""  # by a process that did not see the first


def test_a_claim_of_a_dead_process_or_one_long_silent_is_taken_over(
    submission: Submission,
) -> None:
    code = (
        "import os, sys; from pathlib import Path; from voxcast.jobs.claim import claimed\n"
        "claim = claimed(Path(sys.argv[1])); claim.__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(submission.folder)], check=False)
    assert (submission.folder / CLAIM_FILE).exists()
    with claimed(submission.folder) as first:
        silent_since = (submission.folder / CLAIM_FILE).stat().st_mtime - EXPIRES_S - 1
        os.utime(submission.folder / CLAIM_FILE, (silent_since, silent_since))
        with claimed(submission.folder), pytest.raises(ClaimLostError):
            first.check()


def test_results_that_were_recorded_and_not_moved_are_moved_by_the_next(tmp_path: Path) -> None:
    plan = plan_of(shell_app(COPY), write_images(tmp_path / "in", ["a.nii"]))
    submission = Submission.create(plan, tmp_path / "out", "local")
    executor = LocalExecutor(submission)
    followed(Follower(submission, executor))
    # As a process leaves it that was killed between the two.
    work = submission.files(1).attempt_folder(1)
    work.mkdir()
    (tmp_path / "out" / "a").rename(work / OUT_NAME)
    follower = Follower(Submission.open(submission.folder), executor)
    assert not follower.step()
    assert (tmp_path / "out" / "a" / "copy").read_text() == "voxels"
    assert not work.exists()
    assert outcomes(follower, "a") == ["completed"]
    executor.close()


def test_tasks_that_never_started_are_made_again_however_often_the_process_ends(
    tmp_path: Path,
) -> None:
    images = write_images(tmp_path / "in", [f"{name}.nii" for name in "abcd"])
    submission = Submission.create(plan_of(shell_app(COPY), images), tmp_path / "out", "local")
    for _ in range(12):  # more often than a task is attempted
        follower = Follower(submission, executor := LocalExecutor(submission))
        executor._pool.shutdown()  # as of a process that is killed before any task starts
        with pytest.raises(RuntimeError, match="after shutdown"):
            follower.step()
    follower = Follower(submission, executor := LocalExecutor(submission))
    followed(follower)
    executor.close()
    assert [outcomes(follower, name) for name in "abcd"] == 4 * [["completed"]]


def test_a_folder_of_another_user_is_named(unprivileged_folder: Path) -> None:
    plan = plan_of(shell_app(COPY), write_images(unprivileged_folder / "in", ["a.nii"]))
    out = unprivileged_folder / "out"
    (out / SUBMISSIONS).mkdir(parents=True)
    (out / SUBMISSIONS).chmod(0o500)
    with pytest.raises(ConfigError, match="belongs to another user; choose another --out"):
        Submission.create(plan, out, "local")


def test_a_claim_is_not_taken_from_who_took_it_over_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CLAIM_FILE).write_text("old process 1 on gone")
    os.utime(tmp_path / CLAIM_FILE, (0, 0))
    judge = claim.is_abandoned
    first = claimed(tmp_path)

    def slowly(path: Path, holder: str) -> bool:
        monkeypatch.setattr(claim, "is_abandoned", judge)
        abandoned = judge(path, holder)
        first.__enter__()  # another process is faster between the look and the removal
        return abandoned

    monkeypatch.setattr(claim, "is_abandoned", slowly)
    with (
        pytest.raises(RunError, match=rf"process {os.getpid()} on .* follows it"),
        claimed(tmp_path),
    ):
        pass
    first.__exit__(None, None, None)
    assert not list(tmp_path.glob(f"{CLAIM_FILE}*"))


def test_a_clock_that_is_an_hour_ahead_takes_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    with claimed(tmp_path):
        monkeypatch.setattr(time, "time", lambda: now_s + 12 * EXPIRES_S)
        with pytest.raises(RunError, match="follows it"), claimed(tmp_path):
            pass


def test_a_folder_of_results_opens_its_newest_submission(
    submission: Submission, tmp_path: Path
) -> None:
    plan = plan_of(shell_app("true"), write_images(tmp_path / "in", ["b.nii"]))
    newer = Submission.create(plan, submission.out, "local")
    assert Submission.open(submission.out).folder == newer.folder
    assert Submission.open(submission.folder).folder == submission.folder


def test_tasks_in_the_queue_get_what_others_needed(tmp_path: Path) -> None:
    images = write_images(tmp_path / "in", [f"{n:02}.nii" for n in range(16)], "120")
    plan = plan_of(
        shell_app(HOLD.replace("sleep 2", "sleep 1")), images, walltimes_s=(6000.0,),
        memories_bytes=(60 * MB,), prediction=replace(PLANTED, peak_rss_bytes_upper=5e7),
    )  # fmt: skip
    bounded = tuple(replace(task, max_memory_bytes=1e9) for task in plan.tasks)
    plan = replace(plan, tasks=bounded)
    submission = Submission.create(plan, tmp_path / "out", "local")
    with closing(LocalExecutor(submission)) as executor:
        follower = followed(Follower(submission, executor))
    attempts = [follower.state.attempts(task.name) for task in plan.tasks]
    assert {of_task[-1].outcome for of_task in attempts} == {"completed"}
    assert any(of_task[0].outcome == "out_of_memory" for of_task in attempts)
    assert max(of_task[0].request.memory_bytes for of_task in attempts) > 60 * MB
    # Who reads the events goes on from the same requests.
    again = Follower(Submission.open(submission.folder))
    assert [again.state.attempts(task.name) for task in plan.tasks] == attempts
    first = again.learner.first(plan.tasks[0])
    assert first == follower.learner.first(plan.tasks[0])
    assert 120 * MB <= first.memory_bytes <= 170 * MB
    assert first.walltime_s == 6000.0  # never lowered
