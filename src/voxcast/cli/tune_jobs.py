"""``voxcast tune --cluster C --submit``: workers of a search as jobs, round after round."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from voxcast.errors import RunError
from voxcast.quantities import format_bytes, parse_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.submission import Plan
    from voxcast.records import Request

INTERRUPTED = 130

logger = logging.getLogger(__name__)


def worker_request(args: argparse.Namespace, cluster: Cluster | None = None) -> Request:
    """Return what the job of a worker asks for: more where a cluster counts mapped files too."""
    from voxcast.records import Request

    added = 0 if cluster is None else cluster.added_bytes
    return Request(args.time, parse_bytes(args.mem) + added, 1)


def submit_workers(
    args: argparse.Namespace,
    cluster: Cluster,
    command: Sequence[str],
    count: int,
    trials_left: Callable[[], int],
) -> int:
    """Submit workers and follow them until no trial is left; return the exit code.

    Jobs of an earlier process that are queued or running are followed first. A round after which
    trials are left, as its jobs were too short, is followed by another.

    Parameters
    ----------
    command : sequence of str
        Of a worker.
    trials_left : callable
        Returns how many trials are still to be made.

    Raises
    ------
    RunError
        If a round was refused, or made no trial.
    """
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.rounds import (
        MAX_ROUNDS,
        check_accepted,
        create_round,
        following,
        open_round,
    )
    from voxcast.jobs.slurm import SlurmExecutor

    with following(args.folder) as claim:
        submission, submitted = open_round(args.folder), 0
        while True:
            left = trials_left()
            if submission is None:
                if not left:
                    return 0
                if submitted == (args.max_passes or MAX_ROUNDS):
                    logger.warning("%d rounds were made, and trials are left", submitted)
                    return 0
                submission = create_round(args.folder, _plan(args, cluster, command, count))
                submitted += 1
            logger.info("round %s", submission.folder)
            follower = Follower(submission, SlurmExecutor(submission))
            try:
                follow(follower, claim, args.poll)
            except KeyboardInterrupt:
                logger.warning("interrupted; jobs go on; the same command continues")
                return INTERRUPTED
            check_accepted(follower)
            if left and trials_left() == left:
                problem = "the workers of the last round ended without having made any trial"
                raise RunError(problem, submission.folder / "logs", "see what they say there")
            submission = None


def _plan(args: argparse.Namespace, cluster: Cluster, command: Sequence[str], count: int) -> Plan:
    from voxcast.jobs.campaign import partition_for
    from voxcast.jobs.rounds import WorkerJobs, worker_plan
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu

    request = worker_request(args, cluster)
    if cluster.added_bytes:
        added = format_bytes(cluster.added_bytes)
        logger.info("%s counts resident pages: jobs are %s larger", cluster.name, added)
    partition = args.partition or partition_for(cluster, request)
    options = SlurmOptions(
        args.account, args.qos, args.constraint, args.throttle,
        memory_per_cpu=partitions_per_cpu(cluster),
    )  # fmt: skip
    jobs = WorkerJobs(request, count, count)
    return worker_plan("tune", command, jobs, partition, options, cluster.name)
