"""A small job that follows a submission in place of a process on the login node.

It runs when the first of the arrays has ended, does one step, and submits its successor, until no
task has an attempt left.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from voxcast.allocation.slurm_script import SlurmRequest
from voxcast.hpc import slurm
from voxcast.hpc.submission import private_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.hpc.submission import Submission
    from voxcast.hpc.submission_state import SubmissionState

WALLTIME_S, MEMORY_BYTES = 600.0, 10**9
DETACHED_PATIENCE_S = 240.0  # with another process that follows just now
MODULE = "voxcast.cli.submit"


def follow_up_script(submission: Submission, partition: str, jobs: Sequence[str]) -> str:
    """Return the script of the job that follows after the first of ``jobs``."""
    request = SlurmRequest(
        f"{submission.plan.app.name}-{submission.label}-follow", partition, 1, 0, WALLTIME_S,
        MEMORY_BYTES, ("follows a submission of voxcast",),
    )  # fmt: skip
    command = [sys.executable, "-m", MODULE, "--detach", "--resume", str(submission.folder)]
    return "\n".join([
        "#!/bin/bash",
        *request.lines(),
        *(f"#SBATCH {option}" for option in submission.plan.slurm.options()),
        f"#SBATCH --dependency={'?'.join(f'afterany:{job}' for job in jobs)}",
        f"exec {shlex.join(command)}",
        "",
    ])  # fmt: skip


def submit_follow_up(submission: Submission, state: SubmissionState) -> str:
    """Submit the job, and return its number; errors as `voxcast.hpc.slurm.call`."""
    arrays = [state.arrays[number] for number in sorted({n for n, _ in state.live.values()})]
    jobs = [array.job for array in arrays if array.job]
    partition = state.tasks[arrays[0].names[0]].partition
    path = submission.folder / "arrays" / "follow.sbatch"
    private_text(path, follow_up_script(submission, partition, jobs))
    log = str(submission.folder / "logs").replace("%", "%%")
    options = [f"--output={log}/follow-%j.log", f"--chdir={submission.folder}"]
    options += submission.plan.slurm.options()
    return slurm.submit(path, options)
