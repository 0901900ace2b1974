"""Texts for ``sbatch`` besides scripts of arrays, as they were recorded."""

import sys
from pathlib import Path

from planted_tasks import COPY, plan_of, shell_app, write_images
from voxcast.hpc.attempts import Request
from voxcast.hpc.follow_up import follow_up_script
from voxcast.hpc.plan import SlurmOptions
from voxcast.hpc.submission import Submission
from voxcast.hpc.worker_jobs import WorkerJobs, array_line

GOLDENS = Path(__file__).parents[2] / "goldens" / "sbatch"


def test_the_line_that_starts_workers() -> None:
    jobs = WorkerJobs(Request(7322.5, 6 * 10**9, 4, 1), 12, 30)
    command = ["voxcast", "work", "--pool", "/data/a pool"]
    lines = (GOLDENS / "worker.txt").read_text().splitlines()
    assert [array_line(command, jobs, "long"), array_line(command, jobs)] == lines


def test_the_job_that_follows_a_submission(tmp_path: Path) -> None:
    options = SlurmOptions(account="lab", qos="long", throttle=8)
    plan = plan_of(shell_app(COPY), write_images(tmp_path / "in", ["sub-01.nii"]), slurm=options)
    submission = Submission.create(plan, tmp_path / "my out", "slurm")
    text = follow_up_script(submission, "debug", ["101", "202_3"])
    for found, put in (
        (str(submission.folder), "/data/my out/SUBMISSION"),
        (sys.executable, "PYTHON"),
        (submission.label, "LABEL"),
    ):
        text = text.replace(found, put)
    assert text == (GOLDENS / "follow.sbatch").read_text()
