"""``voxcast campaign run NAME --cluster C``: a campaign as a pool of work, run by many workers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.cli.cell_forecasts import cell_forecasts
from voxcast.cli.shared_options import add_poll_argument, size_of_this_machine, whole_number
from voxcast.errors import ConfigError
from voxcast.quantities import format_bytes

if TYPE_CHECKING:
    import argparse

    from voxcast.allocation.machines import Cluster
    from voxcast.campaigns.project_campaign import ProjectCampaign
    from voxcast.hpc.pool import Pool
    from voxcast.jobs.claim import Claim

logger = logging.getLogger(__name__)

LOCAL = "local"  # the cluster that is this machine
INTERRUPTED, CELLS_LEFT = 130, 1
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
        help="submit the workers to Slurm and follow them, pass after pass;\n"
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


def run_on_cluster(campaign: ProjectCampaign, args: argparse.Namespace) -> int:
    """Make the pool of a campaign, have workers run it, and collect its runs.

    On this machine workers are started here; with ``--submit`` they are jobs of Slurm. Otherwise
    the command that starts them is printed, and the same command says how far they are.
    """
    from voxcast.hpc.campaign_pool import POOL, collect_pool, make_campaign_pool, pool_state
    from voxcast.hpc.worker_jobs import next_jobs, sbatch_line
    from voxcast.hpc.worker_pass import following, open_pass, partition_for, within_partition

    cluster = within_partition(_cluster(args.cluster), args.partition)
    if args.submit:
        from voxcast.jobs.slurm import check_installed

        check_installed()
    campaign.prepare_images()
    code = 0
    with contextlib.ExitStack() as stack:
        claim = stack.enter_context(following(campaign.folder / POOL)) if args.submit else None
        forecast = cell_forecasts(cluster, Path.cwd())
        pool, plan = make_campaign_pool(campaign, cluster, Path.cwd(), forecast)
        for note in plan.notes:
            logger.info(note)
        if claim is not None:
            code = _submit_passes(campaign, pool, cluster, claim, args)
        elif cluster.name == LOCAL:
            _run_here(campaign, pool, args)
    parts, state, jobs = collect_pool(campaign, pool), pool_state(pool), next_jobs(pool)
    under_way = open_pass(pool.folder)
    line = None
    if jobs is not None and cluster.name != LOCAL and under_way is None:
        partition = args.partition or partition_for(cluster, jobs.request)
        line = sbatch_line(pool, jobs, partition)
    if args.submit and (state.left or state.given_up):
        code = code or CELLS_LEFT
    if args.json:
        summary = dataclasses.asdict(state) | {"left": state.left, "pool": str(pool.folder)}
        print(json.dumps(summary | {"parts": list(map(str, parts)), "workers": line}))
        return code
    print(f"{args.name}: {state.text()}")
    if state.given_up:
        print(f"  why: {pool.folder / 'errors'}; the same command again lets them wait again")
    if under_way is not None:
        print(f"  jobs are queued or running; `voxcast status {under_way.folder}` shows them")
    if line is not None:
        print(f"  start workers, {jobs}, or have that done by --submit:\n{line}")
    return code


def _cluster(name: str) -> Cluster:
    from voxcast import config
    from voxcast.hpc.memory_counting import with_memory_counted

    cluster = config.load_submit(cluster=name, here=size_of_this_machine).cluster
    return cluster if name == LOCAL else with_memory_counted(cluster)


def _submit_passes(
    campaign: ProjectCampaign, pool: Pool, cluster: Cluster, claim: Claim, args: argparse.Namespace
) -> int:
    """Submit workers to Slurm, pass after pass; return the exit code."""
    from voxcast.hpc.campaign_pool import collect_pool
    from voxcast.hpc.pass_loop import MAX_PASSES, PassSettings, follow_passes
    from voxcast.hpc.worker_jobs import WorkerJobs
    from voxcast.hpc.worker_pass import partition_for, pass_plan
    from voxcast.jobs.plan import Plan, SlurmOptions
    from voxcast.jobs.slurm import check_partition

    options = SlurmOptions(args.account, args.qos, args.constraint, args.throttle)

    def plan_of(jobs: WorkerJobs) -> Plan:
        partition = args.partition or partition_for(cluster, jobs.request)
        check_partition(partition)
        return pass_plan(pool, jobs, partition, options, cluster.name)

    settings = PassSettings(args.poll, args.max_passes or MAX_PASSES)
    try:
        follow_passes(pool, plan_of, claim, lambda: collect_pool(campaign, pool), settings)
    except KeyboardInterrupt:
        logger.warning("interrupted; jobs go on; the same command continues")
        return INTERRUPTED
    return 0


def _run_here(campaign: ProjectCampaign, pool: Pool, args: argparse.Namespace) -> None:
    """Run workers side by side, and then one with all of the machine for what was too large."""
    from voxcast.hpc.campaign_pool import collect_pool, pool_state
    from voxcast.hpc.worker_jobs import run_local_workers, work_command
    from voxcast.profiling.host import host_facts

    facts, count = host_facts(), args.parallel or 1
    budget = [] if args.time_budget is None else [f"--time-budget={max(args.time_budget, 1):g}s"]

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
            run_local_workers(work_command(pool, "--json", *share, *budget), workers, on_progress)
        finally:
            collect_pool(campaign, pool)
