"""``voxcast submit`` and ``voxcast status`` as users call them, on this machine without Slurm."""

import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import attempt as voxcast
from planted_tasks import COPY, MB, plan_of, shell_app, write_images
from voxcast.jobs.submission import SlurmOptions

VOXCAST = Path(sys.executable).with_name("voxcast")
# Needs the second request.
SLOW_FIRST = f'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 60; fi; {COPY}'


def written(tmp_path: Path, script: str = COPY, names: tuple[str, ...] = ("a.nii", "b c.nii"),
            **options: object) -> Path:  # fmt: skip
    plan = plan_of(shell_app(script), write_images(tmp_path / "in", names), **options)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_record()))
    return path


def submitted(plan: Path) -> subprocess.CompletedProcess[str]:
    """Submit a plan to this machine, with its results beside it."""
    command = ("submit", plan, "--out", "out", "--cluster", "local")
    return voxcast(*command, cwd=plan.parent)


def test_the_same_plan_runs_on_this_machine_with_time_enforced(tmp_path: Path) -> None:
    plan = written(tmp_path, SLOW_FIRST, walltimes_s=(2.0, 100.0))
    command = ("submit", plan, "--out", "out", "--cluster", "local", "--json")
    completed = voxcast(*command, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    content = json.loads(completed.stdout)
    assert content["by_status"] == {"completed": 2}
    for row in content["rows"]:
        assert [attempt["outcome"] for attempt in row["attempts"]] == ["timeout", "completed"]
        assert [a["request"]["walltime_s"] for a in row["attempts"]] == [2.0, 100.0]
    assert (tmp_path / "out" / "b_c" / "copy").read_text() == "voxels"
    # The folder that holds a user's commands is private, and with it what is below.
    assert stat.S_IMODE(Path(content["folder"]).stat().st_mode) == 0o700
    status = voxcast("status", "out", cwd=tmp_path)
    assert status.stdout.startswith("planted, 2 tasks: 2 completed\n  4 attempts ended: ")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    plan = written(tmp_path)
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "mine").touch()
    completed = submitted(plan)
    assert completed.returncode == 0, completed.stderr
    assert [path.name for path in (tmp_path / "out" / "a").iterdir()] == ["mine"]
    assert (tmp_path / "out" / "b_c" / "copy").is_file()


def test_an_interrupted_submission_is_resumed(tmp_path: Path) -> None:
    plan = written(tmp_path, SLOW_FIRST, names=("a.nii",), walltimes_s=(50.0, 100.0))
    command = [VOXCAST, "submit", plan, "--out", "out", "--cluster", "local"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "in" / "a.nii.tried").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "interrupted; its runs were stopped; `voxcast submit --out " in stderr
    resumed = voxcast("submit", "--out", "out", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "2 attempts ended: 1 completed, 1 node failure" in resumed.stdout
    assert (tmp_path / "out" / "a" / "copy").is_file()


def test_another_process_sees_what_runs_on_this_machine(tmp_path: Path) -> None:
    plan = written(
        tmp_path, 'echo $$ > "$1.pid"; sleep 100', names=("a.nii", "b.nii", "c.nii"),
        walltimes_s=(200.0,), slurm=SlurmOptions(throttle=1),
    )  # fmt: skip
    command = [VOXCAST, "submit", plan, "--out", "out", "--cluster", "local"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    def by_status() -> dict[str, int]:
        status = voxcast("status", "out", "--json", cwd=tmp_path)
        return json.loads(status.stdout)["by_status"]

    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "in").glob("*.pid")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert by_status() == {"running": 1, "waiting": 2}
    finally:
        process.kill()
        process.wait()
    assert by_status() == {"waiting": 3}  # its tasks are lost with it


def test_a_task_that_fails_is_shown_with_its_log(tmp_path: Path) -> None:
    completed = submitted(written(tmp_path, "echo no such atlas; exit 3", names=("a.nii",)))
    assert completed.returncode == 1
    assert "failed" in completed.stdout
    assert "the application failed" in completed.stdout
    log = completed.stdout.rpartition("log of the first: ")[2].strip()
    assert Path(log).read_text() == "no such atlas\n"


def test_a_task_that_wrote_nothing_is_said_and_may_be_submitted_again(tmp_path: Path) -> None:
    completed = submitted(written(tmp_path, "true", names=("a.nii",)))
    assert completed.returncode == 0
    assert "1 completed task wrote nothing below {out}, which is a folder" in completed.stdout
    again = submitted(written(tmp_path, names=("a.nii",)))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "a" / "copy").is_file()
    assert "wrote nothing" not in again.stdout


def test_a_dry_run_says_what_would_be_asked_and_writes_nothing(tmp_path: Path) -> None:
    plan = written(tmp_path)
    text = voxcast("submit", plan, "--dry-run", cwd=tmp_path)
    assert text.returncode == 0, text.stderr
    assert "planted on lab: 2 tasks in 1 array" in text.stdout
    as_json = voxcast("submit", plan, "--dry-run", "--json", cwd=tmp_path)
    (tmp_path / "again.json").write_text(as_json.stdout)
    again = voxcast("submit", "again.json", "--dry-run", cwd=tmp_path)
    assert again.stdout == text.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"in", "plan.json", "again.json"}


def without_slurm(tmp_path: Path) -> str:
    """Return a search path with Python and without the commands of Slurm."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "env").symlink_to("/usr/bin/env")
    return str(tmp_path / "bin")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("submit plan.json --out out",
         "sbatch: no such command here; run this on a login node of the cluster, or give "
         "--cluster local"),
        ("submit plan.json",
         "--out: is needed: results go nowhere else; give --out DIR"),
        ("submit gone.json --out out", "gone.json: no such file or directory"),
        ("submit bad.json --out out",
         "bad.json: not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("submit plan.json in/a.nii --out out", "plan.json: has its images; leave out IMAGE"),
        ("submit --out in", "in: no submission here; name the folder of one"),
        ("submit empty.json --out out",
         "empty.json: neither a plan nor a recommendation (KeyError('images')); write it with "
         "`voxcast submit --dry-run --json` or `voxcast recommend --json`"),
        ("submit plan.json --out out --cluster local --detach",
         "--detach: needs Slurm; leave it out with --cluster local"),
        ("submit plan.json --out out --poll -3s",
         "--poll: a duration cannot be negative or infinite: '-3s'"),
        ("status in", "in: no submission here; name the folder of one"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(arguments: str, line: str, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "bad.json").write_text("?")
    completed = voxcast(*arguments.split(), cwd=tmp_path, PATH=without_slurm(tmp_path))
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == f"voxcast: {line}\n"


def test_an_image_that_is_gone_is_named(tmp_path: Path) -> None:
    plan = written(tmp_path)
    (tmp_path / "in" / "a.nii").unlink()
    completed = voxcast("submit", plan, "--out", "out", cwd=tmp_path)
    assert completed.stderr == f"voxcast: {tmp_path / 'in' / 'a.nii'}: no such file\n"


def test_too_much_memory_is_stopped_and_asked_for_again(tmp_path: Path) -> None:
    hold = "exec perl -e 'my $x = \"x\" x ($ARGV[0] * 1e6); sleep 1' 250"
    plan = written(tmp_path, hold, names=("a.nii",), memories_bytes=(100 * MB, 400 * MB))
    command = ("submit", plan, "--out", "out", "--cluster", "local", "--json")
    completed = voxcast(*command, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    (row,) = json.loads(completed.stdout)["rows"]
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["out_of_memory", "completed"]
