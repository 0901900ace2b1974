"""A campaign as a pool of work, run by many workers: ``voxcast measure --cluster``."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.cell_forecasts import cell_forecasts
from voxcast.cli.measure_campaign import LOCAL
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.allocation.site import Cluster
    from voxcast.cli.measure_campaign import Work
    from voxcast.jobs.follow import Follower
    from voxcast.measure.campaign import Campaign
    from voxcast.records import Request

logger = logging.getLogger(__name__)

INTERRUPTED, CELLS_LEFT = 130, 1
STATES = ("running", "waiting", "given up")


def run_on_cluster(campaign: Campaign, work: Work, *, as_json: bool) -> int:
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

    name, _, partition = str(work.cluster).partition(":")
    cluster = within_partition(_cluster(name), partition or None)
    per_cpu = partitions_per_cpu(cluster)
    options = SlurmOptions.given(work.sbatch, work.parallel, per_cpu)
    if work.submit:
        check_installed()
    campaign.prepare()
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
        if work.submit:
            follower.executor = SlurmExecutor(submission)
            follower.passes = Passes(next_jobs, MAX_PASSES)
            try:
                follow(follower, work.poll_s, lambda: collect_pool(campaign, submission))
            except KeyboardInterrupt:
                logger.warning("interrupted; jobs go on; the same command continues")
                code = INTERRUPTED
        elif cluster.name == LOCAL:
            _run_here(campaign, follower, work)
        parts = collect_pool(campaign, submission)
    by_status = counts(follower.state, follower.current)
    given_up, left = by_status["given up"], by_status["running"] + by_status["waiting"]
    jobs, line, under_way = None, None, bool(follower.state.live)
    if cluster.name != LOCAL and not under_way:
        jobs = next_jobs(follower.waiting())
    if jobs is not None:
        pool = str(submission.folder.resolve())
        command = ["python", "-m", "voxcast.jobs.worker", "--pool", pool]
        is_per_cpu = jobs.request.partition in per_cpu
        line = array_line(command, jobs.request, jobs.count, per_cpu=is_per_cpu)
    if work.submit and (left or given_up):
        code = code or CELLS_LEFT
    if as_json:
        summary = {"cells": by_status.total(), "recorded": by_status["completed"], "left": left}
        summary |= {name.replace(" ", "_"): by_status[name] for name in STATES}
        places = {"pool": str(submission.folder), "parts": list(map(str, parts))}
        print(json.dumps(summary | places | {"workers": line}))
        return code
    states = ", ".join(f"{by_status[name]} {name}" for name in STATES)
    print(f"{campaign.name}: {by_status['completed']} of {by_status.total()} cells done, {states}")
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

    cluster = config.load_submit(cluster=name, here=config.Here.of_this_machine).cluster
    return cluster if name == LOCAL else with_memory_counted(cluster)


def _run_here(campaign: Campaign, follower: Follower, work: Work) -> None:
    """Run workers side by side, and then one with all of the machine for the rest."""
    from voxcast.jobs.campaign import collect_pool
    from voxcast.jobs.passes import run_local_workers, work_command
    from voxcast.measure.host import host_facts

    facts, count, submission = host_facts(), work.parallel or 1, follower.submission
    deadline = None if work.time_budget_s is None else time.monotonic() + work.time_budget_s

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
