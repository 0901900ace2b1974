"""Texts for ``sbatch`` besides scripts of arrays, as they were recorded."""

import sys
from pathlib import Path

from planted_tasks import COPY, plan_of, shell_app, write_images
from voxcast.jobs.script import follow_up_script
from voxcast.jobs.submission import SlurmOptions, Submission

GOLDENS = Path(__file__).parents[2] / "goldens" / "sbatch"


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
