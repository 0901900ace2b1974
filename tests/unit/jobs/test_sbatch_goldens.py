"""Texts for ``sbatch`` besides scripts of arrays, as they were recorded."""

import sys
from dataclasses import replace
from pathlib import Path

from planted_tasks import COPY, plan_of, shell_app, write_images
from voxcast.jobs.script import array_line, follow_up_script
from voxcast.jobs.submission import SlurmOptions, Submission
from voxcast.records import Request

GOLDENS = Path(__file__).parents[2] / "goldens" / "sbatch"


def test_the_line_that_starts_workers() -> None:
    request = Request(7322.5, 6 * 10**9, 4, 1)
    command = ["voxcast", "work", "--pool", "/data/a pool"]
    lines = (GOLDENS / "worker.txt").read_text().splitlines()
    named = replace(request, partition="long")
    assert [array_line(command, r, 12) for r in (named, request)] == lines


def test_the_job_that_follows_a_submission(tmp_path: Path) -> None:
    options = SlurmOptions(("account=lab", "qos=long"), throttle=8)
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
