"""``voxcast campaign run NAME --cluster C``: a campaign as a pool of work, run by many workers."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.shared_options import size_of_this_machine
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    import argparse

    from voxcast.allocation.machines import Cluster
    from voxcast.campaigns.project_campaign import ProjectCampaign
    from voxcast.hpc.pool import Pool

logger = logging.getLogger(__name__)

LOCAL = "local"  # the cluster that is this machine


def run_on_cluster(campaign: ProjectCampaign, args: argparse.Namespace) -> None:
    """Make the pool of a campaign, run workers where that is this machine, and collect its runs.

    On another cluster the command that starts its workers is printed; the same command again says
    how far they are, and collects what they have recorded.
    """
    from voxcast.hpc.campaign_pool import collect_pool, make_campaign_pool, pool_state
    from voxcast.hpc.worker_jobs import next_jobs, sbatch_line

    cluster = _cluster(args.cluster)
    campaign.prepare_images()
    pool, plan = make_campaign_pool(campaign, cluster, Path.cwd())
    for note in plan.notes:
        logger.info(note)
    if cluster.name == LOCAL:
        _run_here(campaign, pool, args)
    parts, state, jobs = collect_pool(campaign, pool), pool_state(pool), next_jobs(pool)
    line = None
    if jobs is not None and cluster.name != LOCAL:
        line = sbatch_line(pool, jobs, args.partition)
    if args.json:
        summary = dataclasses.asdict(state) | {"left": state.left, "pool": str(pool.folder)}
        print(json.dumps(summary | {"parts": list(map(str, parts)), "workers": line}))
        return
    print(f"{args.name}: {state.recorded} of {state.cells} cells done, {state.running} running, "
          f"{state.waiting} waiting, {state.given_up} given up")  # fmt: skip
    if state.given_up:
        print(f"  why: {pool.folder / 'errors'}; the same command again lets them wait again")
    if line is not None:
        print(f"  start workers, {jobs}:\n{line}")


def _cluster(name: str) -> Cluster:
    from voxcast import config

    return config.load_submit(cluster=name, here=size_of_this_machine).cluster


def _run_here(campaign: ProjectCampaign, pool: Pool, args: argparse.Namespace) -> None:
    """Run workers side by side, and then one with all of the machine for what was too large."""
    from voxcast.hpc.campaign_pool import collect_pool, pool_state
    from voxcast.hpc.worker_jobs import run_local_workers
    from voxcast.profiling.host import host_facts

    facts, count = host_facts(), args.parallel or 1
    hours = [] if args.hours is None else [f"--max-hours={max(args.hours, 1e-3):g}"]

    def on_progress() -> None:
        state = pool_state(pool)
        logger.info("%d of %d cells done, %d left", state.recorded, state.cells, state.left)

    for workers in (count, 1) if count > 1 else (1,):
        if not pool_state(pool).left:
            break
        memory = facts.memory_bytes // workers
        share = [f"--cpus={len(os.sched_getaffinity(0)) // workers}", f"--memory={memory}B"]
        logger.info("%d workers with %s each", workers, format_bytes(memory))
        try:
            run_local_workers(pool, workers, [*share, *hours], on_progress)
        finally:
            collect_pool(campaign, pool)
