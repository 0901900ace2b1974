"""Who ended a step of a job, by the accounting of a real Slurm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm
from voxcast.runs import slurm as accounting

pytestmark = pytest.mark.slurm
COLUMNS = "JobID,JobName,User,State,ExitCode,ElapsedRaw,MaxRSS,NTasks,ReqMem"
TOO_MUCH = "python3 -c 'import time; held = bytearray(400 << 20); time.sleep(300)'"


def submitted(slurm: PrivateSlurm, folder: Path, name: str, script: str) -> str:
    ended = slurm.command(
        "sbatch", "--parsable", "--mem=150", "--time=5", f"--job-name={name}", "-o",
        str(folder / name), f"--wrap={script}",
    )  # fmt: skip
    return ended.stdout.strip()


def test_a_step_that_slurm_kills_differs_from_one_that_is_cancelled(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    scripts = {
        "killed_script": f"exec {TOO_MUCH}",
        "killed_step": f"srun {TOO_MUCH}",
        "killed_step_and_on": f"srun {TOO_MUCH}; true",
        "left_step": "srun sleep 300 & sleep 2",
        "cancelled_step": "srun sleep 300",
        "cancelled_job": "srun sleep 300",
    }
    jobs = {name: submitted(slurm, tmp_path, name, text) for name, text in scripts.items()}

    def steps() -> str:
        return slurm.command("squeue", "-h", "-s", "-o", "%i").stdout

    for name, what_ends in (("cancelled_step", ".0"), ("cancelled_job", "")):
        slurm.wait(lambda job=jobs[name]: f"{job}.0" in steps().split(), f"the step of {name}")
        time.sleep(2)  # Slurm counts whole seconds; a job without one is no run
        slurm.command("scancel", f"{jobs[name]}{what_ends}")

    def recorded() -> bool:
        """Return whether the accounting has all jobs with their names, and all their steps."""
        columns = "JobID,JobName,State"
        wanted = ("sacct", "-n", "-P", "-j", ",".join(jobs.values()), "-o", columns)
        lines = [line.split("|") for line in slurm.command(*wanted).stdout.splitlines()]
        has_step = {job.partition(".")[0] for job, _, _ in lines if job.endswith(".batch")}
        return (
            {job: name for job, name, _ in lines if "." not in job}
            == {job: name for name, job in jobs.items()}
            and has_step == {*jobs.values()}
            and not any(state.startswith(("PENDING", "RUNNING")) for _, _, state in lines)
        )

    slurm.wait(recorded, "the accounting")
    asked = ("sacct", "-j", ",".join(jobs.values()))
    (tmp_path / "text").write_text(slurm.command(*asked, "-P", "-o", COLUMNS).stdout)
    jobs_read = accounting.read(tmp_path / "text").frame
    assert dict(zip(jobs_read["name"], jobs_read["outcome"], strict=True)) == {
        "killed_script": "out_of_memory", "killed_step": "out_of_memory",
        "killed_step_and_on": "out_of_memory", "left_step": "completed",
        "cancelled_step": "failed", "cancelled_job": "cancelled",
    }  # fmt: skip
