"""Packed jobs on a real Slurm: each task with its limits, its log and its end."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from followed import followed, outcomes
from planted_tasks import MB, plan_of, shell_app, write_images
from private_slurm import PrivateSlurm
from voxcast.history.parts import load_history
from voxcast.hpc.follower import Follower
from voxcast.hpc.job_history import ProjectVolumes, collect_jobs
from voxcast.hpc.job_schedule import JobSchedule, PlannedTime
from voxcast.hpc.plan import Plan
from voxcast.project import PROJECT_FILE

pytestmark = pytest.mark.slurm
# The image is a script; $2 is the folder of results.
OBEY = 'printf "%s\\n" "$OMP_NUM_THREADS" > "$2/threads"; . "$1"'
TASKS = {
    "burns": "exec perl -e 'my $x = \"x\" x 3e7; 1 while times < 1'",
    "copies": 'cp -- "$1" "$2/copy"',
    "fails": "echo no such atlas >&2; exit 3",
    "holds": "exec perl -e 'my $x = \"x\" x ($ARGV[0] * 1e6); sleep 2' 250",
    "last": 'cp -- "$1" "$2/copy"',
    "waits": 'if [ ! -e "$1.tried" ]; then touch -- "$1.tried"; sleep 600; fi',
}
HOSTILE = ("a b.nii", "q'uo\"te.nii", "new\nline.nii", "$(touch pwned).nii", "-dash.nii", "%a.nii",
           os.fsdecode(b"caf\xe9.nii"))  # fmt: skip


def together(plan: Plan, *jobs: tuple[tuple[str, ...], ...]) -> Plan:
    """Return a plan with these packed jobs: names of tasks by lane."""
    time = PlannedTime(60.0, 0.1)
    return dataclasses.replace(plan, schedule=JobSchedule(3, 4, jobs, time, (30.0, 90.0), 50.0))


def scripts(folder: Path, *names: str) -> list[Path]:
    """Write the scripts of tasks."""
    images = write_images(folder, [f"{name}.nii" for name in names])
    for name, image in zip(names, images, strict=True):
        image.write_text(TASKS[name])
    return images


def test_a_task_that_fails_harms_no_other_and_each_has_its_account(
    slurm: PrivateSlurm, follower_of, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = scripts(tmp_path / "in", "burns", "copies", "fails", "holds", "last")
    plan = together(
        plan_of(shell_app(OBEY), images),
        (("fails", "holds", "burns", "last"), ("copies",)),
    )
    follower = followed(follower_of(plan))
    ends = {name: outcomes(follower, name) for name in TASKS if name != "waits"}
    assert ends == {
        "burns": ["completed"], "copies": ["completed"], "fails": ["failed"],
        "holds": ["out_of_memory", "completed"], "last": ["completed"],
    }  # fmt: skip
    # One job of one array ran all first attempts, and its second lane beside the first.
    firsts = [attempts[0] for attempts in follower.state.ended.values()]
    assert {(first.array, first.facts["job"]) for first in firsts} == {(1, firsts[0].facts["job"])}
    assert {first.attempt.request.memory_bytes for first in firsts} == {100 * MB}
    assert follower.state.arrays[1].request.cpus == 2
    burns = follower.state.ended["burns"][0]
    assert burns.facts["cpu_s"] >= 0.9
    assert 30 * MB <= burns.facts["peak_bytes"] <= 100 * MB
    second = follower.state.ended["holds"][1]
    assert (second.attempt.request.memory_bytes, second.array) == (400 * MB, 2)
    assert "(no such atlas); given up: the application failed" in caplog.text
    assert (tmp_path / "out" / "last" / "copy").is_file()
    assert (tmp_path / "out" / "copies" / "threads").read_text() == "1\n"


def test_hostile_names_pass_through_packed_jobs(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "100%a in", HOSTILE, 'cp -- "$1" "$2/copy"')
    plan = plan_of(shell_app(OBEY), images, cpus=2)
    names = [task.name for task in plan.tasks]
    follower = followed(follower_of(together(plan, (tuple(names[:3]),), (tuple(names[3:]),))))
    assert [outcomes(follower, name) for name in names] == [["completed"]] * len(names)
    for task, image in zip(plan.tasks, images, strict=True):
        assert (tmp_path / "out" / task.name / "copy").read_text() == image.read_text()
        assert (tmp_path / "out" / task.name / "threads").read_text() == "2\n"
    assert not list(tmp_path.rglob("pwned"))
    assert follower.submission.script(1).read_text().count("#SBATCH --array=1-2\n") == 1


def test_packed_tasks_have_the_number_of_their_job_in_the_history(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = write_images(
        tmp_path / "in", ["copies.nii", "last.nii", "burns.nii"], "sleep 2; true"
    )
    plan = together(plan_of(shell_app(OBEY), images), (("copies", "last"),))
    follower = followed(follower_of(plan))
    batch = tmp_path / "jobs"
    collect_jobs(follower.submission, batch, ProjectVolumes({}, 32))
    labels = map(json.loads, load_history([batch])["labels_json"])
    jobs = {label["task"]: label["job_id"] for label in labels}
    arrays = follower.state.arrays
    assert jobs == {
        "copies": f"{arrays[1].job}_1", "last": f"{arrays[1].job}_1", "burns": f"{arrays[2].job}_1"
    }  # fmt: skip


def test_a_task_above_its_time_asks_for_more_and_its_job_goes_on(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = scripts(tmp_path / "in", "waits", "last")
    plan = plan_of(shell_app(OBEY), images, walltimes_s=(60.0, 180.0))
    follower = followed(follower_of(together(plan, (("waits", "last"),))))
    assert outcomes(follower, "waits") == ["timeout", "completed"]
    assert outcomes(follower, "last") == ["completed"]
    requests = [attempt.request.walltime_s for attempt in follower.state.attempts("waits")]
    assert requests == [60.0, 180.0]


def test_a_task_that_stalls_is_stopped_alone(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = scripts(tmp_path / "in", "waits", "last")
    plan = plan_of(shell_app(OBEY), images, stall_s=5.0)
    follower = followed(follower_of(together(plan, (("waits", "last"),))))
    assert outcomes(follower, "waits") == ["stalled", "completed"]
    assert outcomes(follower, "last") == ["completed"]


def test_what_a_job_that_is_killed_had_not_started_is_asked_for_unchanged(
    slurm: PrivateSlurm, follower_of, tmp_path: Path
) -> None:
    images = scripts(tmp_path / "in", "copies", "waits", "last")
    plan = plan_of(shell_app(OBEY), images)
    shortened: list[str] = []

    def shorten(follower: Follower) -> None:
        task_state = follower.current.get("waits")
        if task_state is not None and task_state.is_running and not shortened:
            array, number = follower.state.live["waits"]
            shortened.append(follower.state.arrays[array].job_of(number))
            slurm.command("scontrol", "update", f"JobId={shortened[0]}", "EndTime=now+1")

    follower = followed(follower_of(together(plan, (("copies", "waits", "last"),))), shorten)
    assert outcomes(follower, "copies") == ["completed"]
    for name in ("waits", "last"):
        assert outcomes(follower, name) == ["preempted", "completed"]
        first, second = follower.state.attempts(name)
        assert first.request == second.request
    assert follower.state.ended["last"][0].facts["state"] == "NOT_STARTED"


def test_the_verb_plans_submits_and_compares(slurm: PrivateSlurm, tmp_path: Path) -> None:
    images = write_images(tmp_path, [f"{n:02}.nii" for n in range(12)], "sleep 1; true")
    rows = []
    for n, image in enumerate(images):
        options = [
            {
                "node_type": "n", "partition": "debug", "device": "cpu", "cpus": cpus, "gpus": 0,
                "walltime_s": 60.0, "memory_bytes": 60 * MB, "excluded": None, "risk": 0.1,
                "runtime_s_median": seconds, "runtime_s_upper": 2 * seconds, "usd_bound": 0.0,
                "peak_rss_bytes_median": 1e7,
            }
            for cpus, seconds in ((1, 1.5 if n else 12.0), (4, 1.2 if n else 4.0))
        ]  # fmt: skip
        rows.append({"image": str(image), "app": "obey", "chosen": options[0], "why": "cheapest",
                     "configurations": options})  # fmt: skip
    recommendation = {"cluster": "lab", "policy": {"confidence": 0.95}, "images": rows}
    (tmp_path / "requests.json").write_text(json.dumps(recommendation))
    _project(tmp_path)
    source = str(Path(__file__).parents[3] / "src")

    def voxcast(*arguments: str) -> str:
        completed = subprocess.run(
            [sys.executable, "-m", "voxcast.cli", *arguments], cwd=tmp_path, text=True,
            capture_output=True, env={**os.environ, "PYTHONPATH": source}, check=False,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    options = ("--requests", "requests.json", "--nodes", "1", "--cores-per-node", "4")
    text = voxcast("submit", *options, "--dry-run")
    assert "planned for 1 node of 4 cores: 12 tasks in" in text
    assert "one core a job" in text
    voxcast("submit", *options, "--out", "out", "--poll", "1s")
    content = json.loads(voxcast("status", "out", "--json"))
    assert content["by_status"] == {"completed": 12}
    assert content["attempts"] == 12
    assert content["schedule"]["finished"]
    assert content["schedule"]["makespan_s"] > 0
    jobs = {(row["attempts"][0]["job"]) for row in content["rows"]}
    assert len(jobs) < 12
    status = voxcast("status", "out")
    assert "on 1 node of 4 cores; took " in status


def _project(folder: Path) -> None:
    """Make a project with the application ``obey``."""
    conf = Path(__file__).parents[3] / "conf"
    (folder / "conf" / "app").mkdir(parents=True)
    for name in ("config.yaml", "app/_base.yaml"):
        (folder / "conf" / name).write_bytes((conf / name).read_bytes())
    (folder / PROJECT_FILE).touch()
    (folder / "conf" / "app" / "obey.yaml").write_text(
        "defaults: [_base@obey, _self_]\n"
        "obey:\n"
        "  version: '1'\n"
        f"  argv: [bash, -c, {json.dumps(OBEY)}, bash, '{{image}}', '{{out}}']\n"
    )
