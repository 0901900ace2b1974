"""``voxcast tune --cluster C --submit``: workers of a search as jobs, pass after pass."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from voxcast.quantities import format_bytes, parse_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from voxcast.allocation.site import Cluster
    from voxcast.records import Request

INTERRUPTED = 130
JOBS = "jobs"  # in the folder of the search

logger = logging.getLogger(__name__)


def worker_request(args: argparse.Namespace, cluster: Cluster | None = None) -> Request:
    """Return the request of a worker's job: more where a cluster counts mapped files too."""
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

    Jobs of an earlier process that are queued or running are followed first. A pass after which
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
        If a pass was refused, or made no trial.
    """
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.passes import MAX_PASSES, Passes, WorkerJobs, worker_app
    from voxcast.jobs.slurm import SlurmExecutor
    from voxcast.jobs.submission import Plan, SlurmOptions, Submission, partitions_per_cpu

    options = SlurmOptions(
        args.account, args.qos, args.constraint, args.throttle,
        memory_per_cpu=partitions_per_cpu(cluster),
    )  # fmt: skip
    plan = Plan(worker_app("tune", command), cluster=cluster.name, slurm=options)
    folder, jobs = args.folder / JOBS, WorkerJobs(_request(args, cluster), count)
    passes = Passes(
        lambda _: jobs if trials_left() else None, args.max_passes or MAX_PASSES, trials_left
    )
    with claimed(folder) as claim:
        submission = Submission.of_workers(folder, plan)
        try:
            follow(Follower(submission, SlurmExecutor(submission), claim, passes), args.poll)
        except KeyboardInterrupt:
            logger.warning("interrupted; jobs go on; the same command continues")
            return INTERRUPTED
    return 0


def _request(args: argparse.Namespace, cluster: Cluster) -> Request:
    from voxcast.jobs.campaign import partition_for

    request = worker_request(args, cluster)
    if cluster.added_bytes:
        added = format_bytes(cluster.added_bytes)
        logger.info("%s counts resident pages: jobs are %s larger", cluster.name, added)
    partition = args.partition or partition_for(cluster, request)
    return dataclasses.replace(request, partition=partition)
