"""``voxcast campaign run NAME --cluster C``: a campaign as a pool of work, run by many workers."""

from __future__ import annotations

import dataclasses
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

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.claim import Claim
    from voxcast.jobs.settle import Ledger
    from voxcast.measure.campaign import Campaign

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
    """Make the pool of a campaign, have workers run it, and collect its runs.

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
    from voxcast.jobs.rounds import following, next_jobs, open_round, sbatch_line
    from voxcast.jobs.submission import partitions_per_cpu

    cluster = within_partition(_cluster(args.cluster), args.partition)
    if args.submit:
        from voxcast.jobs.slurm import check_installed

        check_installed()
    campaign.prepare()
    code = 0
    with following(campaign.folder / POOL) as claim:
        forecast = cell_forecasts(cluster, Path.cwd())
        ledger, plan = make_campaign_pool(campaign, cluster, Path.cwd(), claim, forecast)
        pool = ledger.pool
        for note in plan.notes:
            logger.info(note)
        ledger.settle()
        if args.submit:
            code = _submit_rounds(campaign, ledger, cluster, claim, args)
        elif cluster.name == LOCAL:
            _run_here(campaign, ledger, claim, args)
        parts, state, jobs = collect_pool(campaign, pool), ledger.state(), next_jobs(ledger)
    under_way = open_round(pool.folder)
    line = None
    if jobs is not None and cluster.name != LOCAL and under_way is None:
        partition = args.partition or partition_for(cluster, jobs.request)
        per_cpu = partition in partitions_per_cpu(cluster)
        line = sbatch_line(pool, jobs, partition, per_cpu=per_cpu)
    if args.submit and (state.left or state.given_up):
        code = code or CELLS_LEFT
    if args.json:
        summary = dataclasses.asdict(state) | {"left": state.left, "pool": str(pool.folder)}
        print(json.dumps(summary | {"parts": list(map(str, parts)), "workers": line}))
        return code
    print(f"{args.name}: {state.text()}")
    if state.given_up:
        print(f"  why: {pool.events}; the same command again lets them wait again")
    if under_way is not None:
        print(f"  jobs are queued or running; `voxcast status {under_way.folder}` shows them")
    if line is not None:
        print(f"  start workers, {jobs}, or have that done by --submit:\n{line}")
    return code


def _cluster(name: str) -> Cluster:
    from voxcast import config
    from voxcast.jobs.slurm import with_memory_counted

    cluster = config.load_submit(cluster=name, here=size_of_this_machine).cluster
    return cluster if name == LOCAL else with_memory_counted(cluster)


def _submit_rounds(
    campaign: Campaign,
    ledger: Ledger,
    cluster: Cluster,
    claim: Claim,
    args: argparse.Namespace,
) -> int:
    """Submit workers to Slurm, round after round; return the exit code."""
    from voxcast.jobs.campaign import collect_pool, partition_for
    from voxcast.jobs.rounds import MAX_ROUNDS, Rounds, WorkerJobs, work_command, worker_plan
    from voxcast.jobs.submission import Plan, SlurmOptions, partitions_per_cpu

    options = SlurmOptions(
        args.account, args.qos, args.constraint, args.throttle,
        memory_per_cpu=partitions_per_cpu(cluster),
    )  # fmt: skip
    pool = ledger.pool

    def plan_of(jobs: WorkerJobs) -> Plan:
        partition = args.partition or partition_for(cluster, jobs.request)
        name = f"work-{pool.settings.name}"
        return worker_plan(name, work_command(pool), jobs, partition, options, cluster.name)

    rounds = Rounds(
        ledger, claim, plan_of, lambda: collect_pool(campaign, pool), args.poll,
        args.max_passes or MAX_ROUNDS,
    )  # fmt: skip
    try:
        rounds.run()
    except KeyboardInterrupt:
        logger.warning("interrupted; jobs go on; the same command continues")
        return INTERRUPTED
    return 0


def _run_here(campaign: Campaign, ledger: Ledger, claim: Claim, args: argparse.Namespace) -> None:
    """Run workers side by side, and then one with all of the machine for what was too large."""
    from voxcast.jobs.campaign import collect_pool
    from voxcast.jobs.rounds import run_local_workers, work_command
    from voxcast.measure.host import host_facts

    facts, count = host_facts(), args.parallel or 1
    deadline = None if args.time_budget is None else time.monotonic() + args.time_budget

    def on_progress() -> None:
        claim.touch()
        ledger.settle()
        state = ledger.state()
        logger.info("%d of %d cells done, %d left", state.recorded, state.cells, state.left)

    for workers in (count, 1) if count > 1 else (1,):
        memory = facts.memory_bytes // workers
        share = [f"--cpus={len(os.sched_getaffinity(0)) // workers}", f"--memory={memory}B"]
        while ledger.requests():  # workers end when nothing waits; what failed waits again then
            left_s = None if deadline is None else max(deadline - time.monotonic(), 1.0)
            budget = [] if left_s is None else [f"--time-budget={left_s:g}s"]
            logger.info("%d workers with %s each", workers, format_bytes(memory))
            command = work_command(ledger.pool, "--json", *share, *budget)
            try:
                run_local_workers(command, workers, on_progress)
            finally:
                any_ended = ledger.settle()
                collect_pool(campaign, ledger.pool)
            if not any_ended:
                break
