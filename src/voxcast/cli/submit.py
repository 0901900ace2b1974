"""``voxcast submit``: run an application on a cluster, as predicted, and follow its jobs."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.api import plan as plans
from voxcast.api.submission import again, collect_at_end, following, hand_over, left_of, pause_of
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError

if TYPE_CHECKING:
    from voxcast.jobs.submission import Submission

INTERRUPTED = 130
TASKS_GIVEN_UP = 1
DETACHED_PATIENCE_S = 240.0  # while another process follows

logger = logging.getLogger(__name__)


def submit(
    wanted: options.SiteQuestion,
    images: Annotated[
        list[Path] | None,
        Argument(
            metavar="IMAGE...|BIDS|PLAN.json",
            show_default=False,
            help="Images, a BIDS dataset or a folder of images; or a plan (`submit --dry-run "
            "--json`) or a recommendation (`recommend --json`), which needs no model.",
        ),
    ] = None,
    participants: options.Participants = None,
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Results, a folder for each image.")
    ] = None,
    nodes: Annotated[
        str | None,
        Option(
            "--nodes",
            metavar="NxCORES",
            help="Choose the CPUs by which all images are done soonest on N nodes.",
        ),
    ] = None,
    throttle: Annotated[
        int | None, Option("--throttle", metavar="N", help="Tasks at a time.", min=1)
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        Option("--sbatch", metavar="KEY=VALUE", help="An option of sbatch, e.g. account=mri."),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the plan, and submit nothing.")
    ] = False,
    detach: Annotated[
        bool, Option("--detach", help="Do not wait: a small job follows the others.")
    ] = False,
    poll: Annotated[str, Option("--poll", hidden=True)] = "30s",
    as_json: options.Json = False,
) -> int:
    """Run an application on images with the requests that a model predicts for each.

    Images with similar requests share an array job of Slurm; `--cluster local` runs them here.
    Jobs that run out of time or memory are resubmitted with larger requests, and preempted ones
    with the same. Images that have results are left out. Ctrl-C leaves the jobs running, and
    `voxcast submit --out DIR` goes on. The exit code is 1 if a task was given up.
    """
    from voxcast.jobs.slurm import check_installed
    from voxcast.jobs.submission import Submission

    poll_s = options.seconds(poll, "--poll") or 30.0
    if not images and wanted.app is None and out is not None and not dry_run:
        submission = Submission.open(out)
        if submission.executor == "slurm":
            check_installed()
        elif detach:
            raise ConfigError("needs Slurm", "--detach", "the submission runs on this machine")
        return _run(submission, poll_s, wanted.project, detach=detach, as_json=as_json)

    question, size = wanted.question(), plans.nodes_of(nodes)
    if detach and question.is_local:
        raise ConfigError("needs Slurm", "--detach", "leave it out with --cluster local")
    if out is None and not dry_run:
        raise ConfigError("is needed: results go nowhere else", "--out", "give --out DIR")
    code = 0
    if images and images[0].suffix == ".json":
        if len(images) > 1:
            raise ConfigError("has its images", images[0], "leave out IMAGE")
        jobs = plans.jobs_of_file(images[0], question, size)
    else:
        plan = plans.Plan.of(question, images or (), options.labels_of(participants))
        jobs = plan.jobs(size)
        code = 0 if plan.is_complete else EXIT_BAD_INPUT
    if out is not None:
        jobs = plans.left_to_do(jobs, out)
    jobs = plans.ready(jobs, question, sbatch or (), throttle)
    if dry_run or out is None:
        from voxcast.jobs.state import expected, plan_lines

        content = jobs.to_record() | {"expected": expected(jobs)}
        return options.show(content, plan_lines(jobs), as_json=as_json) or code
    if not jobs.tasks:
        logger.info("nothing is left to do in %s", out)
        return code
    if not question.is_local:
        check_installed()
    submission = Submission.create(jobs, out, "local" if question.is_local else "slurm")
    logger.info("submission %s", submission.folder)
    return _run(submission, poll_s, wanted.project, detach=detach, as_json=as_json) or code


def _run(
    submission: Submission, poll_s: float, project: Path | None, *, detach: bool, as_json: bool
) -> int:
    """Follow a submission, or hand that to a job; return the exit code."""
    from voxcast.jobs.follow import follow

    with following(submission, DETACHED_PATIENCE_S if detach else 0.0) as follower:
        if not detach:
            try:
                follow(follower, pause_of(submission, poll_s))
            except KeyboardInterrupt:
                left = left_of(submission)
                logger.warning("interrupted; %s; `%s` continues", left, again(submission))
                return INTERRUPTED
        elif job := hand_over(follower):
            then = f"voxcast status {shlex.quote(str(submission.folder))}"
            logger.info("job %s follows when jobs end; see `%s`", job, then)
            return 0
    from voxcast.jobs.state import status_record, task_rows, text_lines

    collect_at_end(submission, project)
    rows = task_rows(submission, follower.state, follower.current)
    lines, content = text_lines(submission, rows), status_record(submission, rows)
    options.show(content, lines, as_json=as_json)
    statuses = {row["status"] for row in rows}
    if statuses == {"refused"}:
        return EXIT_BAD_INPUT
    return TASKS_GIVEN_UP if statuses & {"refused", "given up"} else 0


if __name__ == "__main__":  # a follow-up job runs this
    from voxcast.cli import main

    sys.exit(main(["submit", *sys.argv[1:]]))
