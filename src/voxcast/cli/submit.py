"""``voxcast submit IMAGE… --app APP --out DIR``: run it on a cluster, as predicted.

Requests are predicted for each image, from the project's champion, from ``--url``, or read from a
file (``--requests``), which needs no project. Images with similar requests share an array job of
Slurm. A job that was too short, or had too little memory, is submitted again with more; one that
was preempted, or lost its node, with the same. Results go to DIR/NAME, one folder for each image,
and existing results are never replaced.

With ``--nodes N --cores-per-node C`` each image gets the CPUs by which all images are done
soonest, from its predicted scaling.

The command follows its jobs. Ctrl-C leaves them running, and ``--resume`` goes on. The exit code
is 1 if a task was given up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.recommendation_options import add_recommendation_arguments
from voxcast.cli.shared_options import add_poll_argument, duration_s, whole_number
from voxcast.cli.submission_schedule import add_schedule_arguments
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, RunError, VoxcastError, is_disk_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from voxcast.jobs.follow import Follower
    from voxcast.jobs.state import Executor
    from voxcast.jobs.submission import Plan, Submission

INTERRUPTED = 130
TASKS_GIVEN_UP = 1
LOCAL_POLL_S = 0.5
DETACHED_PATIENCE_S = 240.0  # while another process follows

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Submit, and follow until all tasks have ended."""
    parser = VerbParser(
        prog="voxcast submit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="IMAGE")
    parser.add_argument("--images", type=Path, metavar="DIR", help="a BIDS dataset, or a folder")
    parser.add_argument(
        "--participant-label", nargs="+", metavar="LABEL", help="these subjects of --images only"
    )
    parser.add_argument(
        "--requests", type=Path, metavar="FILE",
        help="a plan (`submit --dry-run --json`) or a recommendation (`recommend --json`)",
    )  # fmt: skip
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with a submission")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR",
        help="folder of scripts, logs and records (default: a new one in OUT/.voxcast)",
    )  # fmt: skip
    parser.add_argument("--executor", choices=("slurm", "local"), default="slurm")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and submit nothing")
    parser.add_argument(
        "--detach", action="store_true", help="do not wait: a small job follows the others"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--skip-existing", action="store_true", help="leave out what has results")
    parser.add_argument("--throttle", type=whole_number, metavar="N", help="tasks at a time")
    parser.add_argument("--max-attempts", type=whole_number, default=10, metavar="N")
    parser.add_argument(
        "--stall", type=duration_s, default="1h", metavar="1h",
        help="stop what uses no CPU for so long; 0s: never",
    )  # fmt: skip
    add_poll_argument(parser)
    parser.add_argument("--container-engine", metavar="NAME", help="e.g. apptainer")
    for name in ("account", "qos", "constraint"):
        parser.add_argument(f"--{name}", default="", help="as of sbatch")
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="KEY=VALUE",
        help="any other option of sbatch, e.g. reservation=mri; may be repeated",
    )  # fmt: skip
    add_schedule_arguments(parser)
    add_recommendation_arguments(parser)
    args = parser.parse_intermixed_args(argv)
    if args.resume is not None:
        return _resume(args)
    from voxcast.cli.submission_plan import plan_of
    from voxcast.jobs.submission import Submission, check_outputs

    if args.detach and args.executor != "slurm":
        raise ConfigError("needs Slurm", "--detach", "leave it out with --executor local")
    if args.out is None and not args.dry_run:
        raise ConfigError("is needed: results go nowhere else", "--out", "give --out DIR")
    plan, code = plan_of(args)
    if args.out is not None and not (args.dry_run and args.json):
        check_outputs(plan, args.out)
    if args.dry_run:
        _print_plan(plan, as_json=args.json)
        return code
    if not plan.tasks:
        logger.info("nothing is left to do in %s", args.out)
        return code
    if args.executor == "slurm":
        from voxcast.jobs.slurm import check_installed

        check_installed()
    submission = Submission.create(plan, args.out, args.executor, args.folder)
    logger.info("submission %s", submission.folder)
    return _run(submission, args) or code


def _resume(args: argparse.Namespace) -> int:
    from voxcast.jobs.submission import Submission

    if args.paths or args.images or args.requests or args.out:
        raise ConfigError("takes no images and no --out: the submission has them", "--resume")
    submission = Submission.open(args.resume)
    if args.detach and submission.executor != "slurm":
        raise ConfigError("needs Slurm", "--detach", "the submission runs on this machine")
    if submission.executor == "slurm":
        from voxcast.jobs.slurm import check_installed

        check_installed()
    return _run(submission, args)


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    from voxcast.jobs.status import expected, plan_lines

    if as_json:
        content = plan.to_record() | {"expected": expected(plan)}
        print(json.dumps(content, indent=2, allow_nan=False))
        return
    for line in plan_lines(plan):
        print(line)


def _run(submission: Submission, args: argparse.Namespace) -> int:
    """Follow a submission, or hand that to a job; return the exit code."""
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.slurm import submit_follow_up

    folder = shlex.quote(str(submission.folder))
    with _room_for(submission), contextlib.ExitStack() as stack:
        patience_s = DETACHED_PATIENCE_S if args.detach else 0.0
        claim = stack.enter_context(claimed(submission.folder, patience_s))
        follower = Follower(submission, _executor(submission, stack), claim)
        if args.detach:
            if follower.step():
                job = submit_follow_up(submission, follower.state)
                then = f"voxcast status {folder}"
                logger.info("job %s follows when jobs end; see `%s`", job, then)
                return 0
        else:
            is_local = submission.executor == "local"
            poll_s = min(args.poll, LOCAL_POLL_S) if is_local else args.poll
            try:
                follow(follower, poll_s)
            except KeyboardInterrupt:
                left = _left(submission)
                logger.warning(
                    "interrupted; %s; `voxcast submit --resume %s` continues", left, folder
                )
                return INTERRUPTED
    from voxcast.cli.job_collection import collect_at_end

    collect_at_end(submission, args.project)
    return _print_end(submission, follower, as_json=args.json)


@contextlib.contextmanager
def _room_for(submission: Submission) -> Iterator[None]:
    """Say how to go on when the disk is full."""
    try:
        yield
    except (OSError, VoxcastError) as error:
        if not is_disk_full(error):
            raise
        then = f"voxcast submit --resume {shlex.quote(str(submission.folder))}"
        raise RunError(
            f"no space left on the device; {_left(submission)}",
            submission.folder, f"free some, then `{then}` continues",
        ) from None  # fmt: skip


def _left(submission: Submission) -> str:
    return "jobs go on" if submission.executor == "slurm" else "its runs were stopped"


def _executor(submission: Submission, stack: contextlib.ExitStack) -> Executor:
    if submission.executor == "local":
        from voxcast.jobs.local import LocalExecutor

        local = LocalExecutor(submission)
        stack.callback(local.close)
        return local
    from voxcast.jobs.slurm import SlurmExecutor

    return SlurmExecutor(submission)


def _print_end(submission: Submission, follower: Follower, *, as_json: bool) -> int:
    from voxcast.jobs.status import status_record, task_rows, text_lines

    rows = task_rows(submission, follower.state, follower.current)
    if as_json:
        content = status_record(submission, rows)
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        for line in text_lines(submission, rows):
            print(line)
    statuses = {row["status"] for row in rows}
    if statuses == {"refused"}:
        return EXIT_BAD_INPUT
    return TASKS_GIVEN_UP if statuses & {"refused", "given up"} else 0


if __name__ == "__main__":  # a follow-up job runs this
    sys.exit(main(sys.argv[1:]))
