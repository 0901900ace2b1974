"""``voxcast submit``: run an application on a cluster, as predicted, and follow its jobs."""

from __future__ import annotations

import contextlib
import logging
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.api.plan import SubmissionWish, nodes_of
from voxcast.api.submission import LOCAL_POLL_S, collect_at_end, executor_of, left_of, room_for
from voxcast.api.wish import Wish
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ConfigError
from voxcast.quantities import parse_usd

if TYPE_CHECKING:
    from voxcast.jobs.submission import Submission

INTERRUPTED = 130
TASKS_GIVEN_UP = 1
DETACHED_PATIENCE_S = 240.0  # while another process follows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Following:
    """How a submission is followed.

    Attributes
    ----------
    detach : bool
        Whether a small job follows the others, instead of this process.
    poll_s : float
        Time between two looks at the jobs.
    project : Path or None
        To whose history the jobs are added at the end.
    """

    detach: bool
    poll_s: float
    project: Path | None
    as_json: bool


def submit(
    images: Annotated[
        list[Path] | None,
        Argument(
            metavar="IMAGE...|BIDS",
            show_default=False,
            help="Images, or a BIDS dataset or a folder of images.",
        ),
    ] = None,
    app: options.App = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    parameters: options.Parameters = None,
    model: options.Model = None,
    header_only: options.HeaderOnly = False,
    participants: options.Participants = None,
    cluster: options.Cluster = None,
    policy: options.Policy = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    changes: options.Set = None,
    requests: Annotated[
        Path | None,
        Option(
            "--requests",
            metavar="FILE",
            help="Submit a plan (`submit --dry-run --json`) or a recommendation (`recommend "
            "--json`), which needs no model.",
        ),
    ] = None,
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
    resume: Annotated[
        Path | None, Option("--resume", metavar="DIR", help="Go on with a submission.")
    ] = None,
    poll: Annotated[str, Option("--poll", hidden=True)] = "30s",
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Run an application on images with the requests that a model predicts for each.

    Images with similar requests share an array job of Slurm; `--cluster local` runs them here.
    Jobs that run out of time or memory are resubmitted with larger requests, and preempted ones
    with the same. Images that have results are left out. Ctrl-C leaves the jobs running, and
    --resume goes on. The exit code is 1 if a task was given up.
    """
    from voxcast.jobs.slurm import check_installed
    from voxcast.jobs.submission import Submission

    following = Following(detach, options.seconds(poll, "--poll") or 30.0, project, as_json)
    if resume is not None:
        if images or requests or out:
            raise ConfigError("takes no images and no --out: the submission has them", "--resume")
        submission = Submission.open(resume)
        if submission.executor == "slurm":
            check_installed()
        elif detach:
            raise ConfigError("needs Slurm", "--detach", "the submission runs on this machine")
        return _run(submission, following)

    question = options.question(app, cpus, gpus, parameters, model, header_only, project=project)
    max_usd = None if budget is None else parse_usd(budget)
    wish = Wish(question, cluster, policy, deadline, max_usd, changes or ())
    if detach and wish.is_local:
        raise ConfigError("needs Slurm", "--detach", "leave it out with --cluster local")
    if out is None and not dry_run:
        raise ConfigError("is needed: results go nowhere else", "--out", "give --out DIR")
    submission_wish = SubmissionWish(
        wish, tuple(images or ()), tuple(options.labels_of(participants)), requests, out,
        skip_existing=True, nodes=nodes_of(nodes), sbatch=tuple(sbatch or ()), throttle=throttle,
    )  # fmt: skip
    plan, code = submission_wish.plan()
    if dry_run or out is None:
        from voxcast.jobs.state import expected, plan_lines

        content = plan.to_record() | {"expected": expected(plan)}
        return options.show(content, plan_lines(plan), as_json=as_json) or code
    if not plan.tasks:
        logger.info("nothing is left to do in %s", out)
        return code
    if not wish.is_local:
        check_installed()
    submission = Submission.create(plan, out, "local" if wish.is_local else "slurm")
    logger.info("submission %s", submission.folder)
    return _run(submission, following) or code


def _run(submission: Submission, following: Following) -> int:
    """Follow a submission, or hand that to a job; return the exit code."""
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.slurm import submit_follow_up

    folder = shlex.quote(str(submission.folder))
    with room_for(submission), contextlib.ExitStack() as stack:
        patience_s = DETACHED_PATIENCE_S if following.detach else 0.0
        claim = stack.enter_context(claimed(submission.folder, patience_s))
        follower = Follower(submission, executor_of(submission, stack), claim)
        if following.detach:
            if follower.step():
                job = submit_follow_up(submission, follower.state)
                then = f"voxcast status {folder}"
                logger.info("job %s follows when jobs end; see `%s`", job, then)
                return 0
        else:
            is_local = submission.executor == "local"
            poll_s = min(following.poll_s, LOCAL_POLL_S) if is_local else following.poll_s
            try:
                follow(follower, poll_s)
            except KeyboardInterrupt:
                left = left_of(submission)
                logger.warning(
                    "interrupted; %s; `voxcast submit --resume %s` continues", left, folder
                )
                return INTERRUPTED
    from voxcast.jobs.state import status_record, task_rows, text_lines

    collect_at_end(submission, following.project)
    rows = task_rows(submission, follower.state, follower.current)
    lines, content = text_lines(submission, rows), status_record(submission, rows)
    options.show(content, lines, as_json=following.as_json)
    statuses = {row["status"] for row in rows}
    if statuses == {"refused"}:
        return EXIT_BAD_INPUT
    return TASKS_GIVEN_UP if statuses & {"refused", "given up"} else 0


if __name__ == "__main__":  # a follow-up job runs this
    from voxcast.cli import main

    sys.exit(main(["submit", *sys.argv[1:]]))
