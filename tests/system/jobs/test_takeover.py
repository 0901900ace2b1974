"""What whoever takes a submission over may not do: run it twice, or follow it beside another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from followed import followed, outcomes
from planted_tasks import COPY, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm
from voxcast.errors import RunError
from voxcast.jobs import claim
from voxcast.jobs.claim import CLAIM_FILE, EXPIRES_S, claimed
from voxcast.jobs.follow import Follower
from voxcast.jobs.local import LocalExecutor
from voxcast.jobs.submission import Plan, Submission

PATIENCE_S = 60.0
# Waits for a file before it submits, as a command does whose controller is busy.
LATE_SBATCH = 'while [ ! -e "$GATE" ]; do sleep 0.1; done; exec "$SBATCH" "$@"'
RECORD = 'printf "%s\\n" "$1" >> "$1.runs"; cp -- "$1" "$2/copy"'
SOURCE = str(Path(__file__).parents[3] / "src")


def images_and_plan(folder: Path, script: str) -> tuple[list[Path], Plan]:
    images = write_images(folder / "in", ["a.nii", "b.nii"])
    return images, plan_of(shell_app(script), images)


def voxcast(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "voxcast.cli", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": SOURCE, **variables}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slurm
def test_an_sbatch_that_outlives_its_submitter_runs_nothing_twice(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    images, plan = images_and_plan(tmp_path, RECORD)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_record()))
    late = tmp_path / "late" / "sbatch"
    late.parent.mkdir()
    late.write_text(f"#!/bin/bash\n{LATE_SBATCH}\n")
    late.chmod(0o755)
    gate = tmp_path / "gate"
    variables = {
        "GATE": str(gate), "SBATCH": str(shutil.which("sbatch")),
        "PATH": f"{late.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    submitter = voxcast(tmp_path, "submit", "--requests", "plan.json", "--out", "out", **variables)
    events = "out/.voxcast/*/events.jsonl"
    until(lambda: any("prepared" in path.read_text() for path in tmp_path.glob(events)))
    submitter.kill()
    submitter.wait()
    resumed = voxcast(tmp_path, "submit", "--resume", "out", "--poll", "1s")
    text, _ = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, text
    gate.touch()
    name = f"--name={Submission.open(tmp_path / 'out').job_name(1)}"

    def states() -> set[str]:
        return set(slurm.command("sacct", "-X", "-n", "-P", name, "-o", "State").stdout.split())

    until(lambda: states() == {"FAILED"})  # the late job has no tasks any more
    assert [len(Path(f"{image}.runs").read_text().split()) for image in images] == [1, 1]


@pytest.mark.slurm
def test_variables_of_a_user_or_an_outer_job_change_nothing(
    slurm: PrivateSlurm, follower_of, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    variables = {
        "SBATCH_ARRAY_INX": "2-5", "SBATCH_EXCLUSIVE": "1", "SBATCH_TIMELIMIT": "9",
        "SLURM_GPUS": "2", "SLURM_TIME_FORMAT": "relative", "SQUEUE_PARTITION": "high",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, plan = images_and_plan(tmp_path, COPY)
    follower = followed(follower_of(plan))
    assert [outcomes(follower, name) for name in "ab"] == [["completed"], ["completed"]]
    starts = [follower.state.ended[name][0].facts["started_at"] for name in "ab"]
    assert all(start[4::3].startswith("--T") or "T" in start for start in starts), starts


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


def test_results_go_to_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    _, plan = images_and_plan(tmp_path, COPY)
    out = tmp_path / os.fsdecode(b"r\xe9sultats")
    submission = Submission.create(plan, out, "local")
    executor = LocalExecutor(submission)
    try:
        follower = followed(Follower(submission, executor))
    finally:
        executor.close()
    assert [outcomes(follower, name) for name in "ab"] == [["completed"], ["completed"]]
    assert (out / "a" / "copy").is_file()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs two users")
def test_two_users_share_a_folder_of_results(tmp_path: Path) -> None:
    _, plan = images_and_plan(tmp_path, COPY)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_record()))
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out" / ".voxcast").mkdir(mode=0o700)
    os.chown(tmp_path / "out" / ".voxcast", 65534, 65534)
    powers = "-dac_override,-dac_read_search"  # by which root reads what is another's

    def run(*arguments: str) -> tuple[int, str]:
        command = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]
        completed = subprocess.run(
            [*command, sys.executable, "-m", "voxcast.cli", *arguments], cwd=tmp_path, text=True,
            capture_output=True, env={**os.environ, "PYTHONPATH": SOURCE}, check=False,
        )  # fmt: skip
        return completed.returncode, completed.stderr

    submit = ("submit", "--requests", "plan.json", "--cluster", "local", "--out", "out")
    code, text = run(*submit)
    assert code == 2
    assert "belongs to another user; choose another --out" in text
    assert run("status", "out")[0] == 2
    assert run(*submit[:-1], "mine")[0] == 0
    assert (tmp_path / "mine" / "b" / "copy").is_file()
