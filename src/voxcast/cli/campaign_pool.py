"""``voxcast campaign run NAME --cluster C``: a campaign as a pool of work, run by many workers."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.cell_forecasts import cell_forecasts
from voxcast.cli.shared_options import add_poll_argument, size_of_this_machine, whole_number
from voxcast.errors import ConfigError
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.follow import Follower
    from voxcast.measure.campaign import Campaign
    from voxcast.records import Request

logger = logging.getLogger(__name__)

LOCAL = "local"  # the cluster that is this machine
INTERRUPTED, CELLS_LEFT = 130, 1
STATES = ("running", "waiting", "given up")
OF_SUBMISSION = ("account", "qos", "constraint", "throttle", "max_passes")


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run_on_cluster`."""
    group = parser.add_argument_group("run, on a cluster")
    group.add_argument(
        "--cluster", metavar="C",
        help="as a pool of work for a cluster of conf/cluster; `local` runs workers here",
    )  # fmt: skip
    add_worker_job_arguments(group)


def add_worker_job_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments by which workers are jobs that are submitted and followed."""
    group.add_argument("--partition", help="partition of the workers' jobs")
    group.add_argument(
        "--submit", action="store_true",
        help="submit the workers to Slurm and follow them, round after round;\n"
        "Ctrl-C leaves the jobs, and the same command goes on",
    )  # fmt: skip
    for name in ("account", "qos", "constraint"):
        group.add_argument(f"--{name}", default="", help="as of sbatch")
    group.add_argument("--throttle", type=whole_number, metavar="N", help="workers at a time")
    group.add_argument(
        "--max-passes", type=whole_number, metavar="N", help="submit at most so many (10)"
    )
    add_poll_argument(group)


def check_options(args: argparse.Namespace) -> None:
    """Check that the options of a cluster go together.

    Raises
    ------
    ConfigError
        If they do not.
    """
    check_worker_jobs(args)
    if args.submit and (args.time_budget is not None or args.parallel is not None):
        problem = "are not for jobs of Slurm, whose size follows from the cells"
        raise ConfigError(problem, "--time-budget and --parallel", "leave them out with --submit")


def check_worker_jobs(args: argparse.Namespace) -> None:
    """Check the options of `add_worker_job_arguments`.

    Raises
    ------
    ConfigError
        If they do not go together.
    """
    if args.submit:
        if args.cluster in (None, LOCAL):
            then = "name a cluster of conf/cluster that has Slurm"
            raise ConfigError("needs --cluster, and not `local`", "--submit", then)
    else:
        for name in OF_SUBMISSION:
            if getattr(args, name):
                raise ConfigError("needs --submit", f"--{name.replace('_', '-')}")


def run_on_cluster(campaign: Campaign, args: argparse.Namespace) -> int:
    """Have workers run the cells of a campaign, and collect its runs.

    On this machine workers are started here; with ``--submit`` they are jobs of Slurm. Otherwise
    the command that starts them is printed, and the same command says how far they are.
    """
    from voxcast.jobs.campaign import (
        POOL,
        collect_pool,
        make_campaign_pool,
        partition_for,
        within_partition,
    )
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.passes import MAX_PASSES, Passes, WorkerJobs, jobs_for
    from voxcast.jobs.script import array_line
    from voxcast.jobs.slurm import SlurmExecutor, check_installed
    from voxcast.jobs.status import counts
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu

    cluster = within_partition(_cluster(args.cluster), args.partition)
    if args.submit:
        check_installed()
    campaign.prepare()
    per_cpu = partitions_per_cpu(cluster)
    options = SlurmOptions(
        args.account, args.qos, args.constraint, args.throttle, memory_per_cpu=per_cpu
    )
    code = 0
    with claimed(campaign.folder / POOL) as claim:
        forecast = cell_forecasts(cluster, Path.cwd())
        submission, plan = make_campaign_pool(campaign, cluster, Path.cwd(), options, forecast)
        follower = Follower(submission, claim=claim)

        def next_jobs(waiting: Mapping[str, Request]) -> WorkerJobs | None:
            partition_of = functools.partial(partition_for, cluster)
            return jobs_for(submission.plan, follower.state.tasks, waiting, partition_of)

        for note in plan.notes:
            logger.info(note)
        if again := follower.retry():
            logger.info("%d that were given up are tried again", again)
        follower.settle()
        if args.submit:
            follower.executor = SlurmExecutor(submission)
            follower.passes = Passes(next_jobs, args.max_passes or MAX_PASSES)
            try:
                follow(follower, args.poll, lambda: collect_pool(campaign, submission))
            except KeyboardInterrupt:
                logger.warning("interrupted; jobs go on; the same command continues")
                code = INTERRUPTED
        elif cluster.name == LOCAL:
            _run_here(campaign, follower, args)
        parts = collect_pool(campaign, submission)
    by_status = counts(follower.state, follower.current)
    given_up, left = by_status["given up"], by_status["running"] + by_status["waiting"]
    jobs, line, under_way = None, None, bool(follower.state.live)
    if cluster.name != LOCAL and not under_way:
        jobs = next_jobs(follower.waiting())
    if jobs is not None:
        command = ["voxcast", "work", "--pool", str(submission.folder.resolve())]
        is_per_cpu = jobs.request.partition in per_cpu
        line = array_line(command, jobs.request, jobs.count, per_cpu=is_per_cpu)
    if args.submit and (left or given_up):
        code = code or CELLS_LEFT
    if args.json:
        summary = {"cells": by_status.total(), "recorded": by_status["completed"], "left": left}
        summary |= {name.replace(" ", "_"): by_status[name] for name in STATES}
        places = {"pool": str(submission.folder), "parts": list(map(str, parts))}
        print(json.dumps(summary | places | {"workers": line}))
        return code
    states = ", ".join(f"{by_status[name]} {name}" for name in STATES)
    print(f"{args.name}: {by_status['completed']} of {by_status.total()} cells done, {states}")
    if given_up:
        print("  the same command again lets them wait again")
    if under_way or given_up:
        print(f"  `voxcast status {submission.folder}` shows them")
    if line is not None:
        print(f"  start workers, {jobs}, or have that done by --submit:\n{line}")
    return code


def _cluster(name: str) -> Cluster:
    from voxcast import config
    from voxcast.jobs.slurm import with_memory_counted

    cluster = config.load_submit(cluster=name, here=size_of_this_machine).cluster
    return cluster if name == LOCAL else with_memory_counted(cluster)


def _run_here(campaign: Campaign, follower: Follower, args: argparse.Namespace) -> None:
    """Run workers side by side, and then one with all of the machine for the rest."""
    from voxcast.jobs.campaign import collect_pool
    from voxcast.jobs.passes import run_local_workers, work_command
    from voxcast.measure.host import host_facts

    facts, count, submission = host_facts(), args.parallel or 1, follower.submission
    deadline = None if args.time_budget is None else time.monotonic() + args.time_budget

    def on_progress() -> None:
        follower.step()
        logger.info("%d cells and parts done", len(follower.state.records))

    for workers in (count, 1) if count > 1 else (1,):
        memory = facts.memory_bytes // workers
        share = [f"--cpus={len(os.sched_getaffinity(0)) // workers}", f"--memory={memory}B"]
        while follower.waiting():  # workers end when nothing waits; what failed waits again then
            left_s = None if deadline is None else max(deadline - time.monotonic(), 1.0)
            budget = [] if left_s is None else [f"--time-budget={left_s:g}s"]
            logger.info("%d workers with %s each", workers, format_bytes(memory))
            command = work_command(submission.folder, "--json", *share, *budget)
            try:
                run_local_workers(command, workers, on_progress)
            finally:
                any_ended = follower.settle()
                collect_pool(campaign, submission)
            if not any_ended:
                break
