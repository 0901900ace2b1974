"""A campaign: many runs, measured in sittings and recorded, for ``voxcast measure --campaign``.

Images, catalogue and runs of a campaign are in ``data/campaigns/NAME``, separate from the
project's; its permanent record is collected in ``data/history/NAME``.

A campaign as a pool of work, run by many workers: ``voxcast measure --cluster``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.cli.measure_host import update_after_runs
from voxcast.errors import ConfigError
from voxcast.quantities import format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.follow import Follower
    from voxcast.measure.campaign import Campaign


LOCAL = "local"  # the cluster that is this machine

logger = logging.getLogger(__name__)


def measure_campaign(
    project: Path | None,
    name: str,
    changes: Sequence[str],
    time_budget_s: float | None,
    parallel: int | None,
    *,
    as_json: bool,
) -> int:
    """Make the runs of a campaign that are left, and record them.

    Parameters
    ----------
    changes : sequence of str
        ``KEY=VALUE`` of the configuration.
    time_budget_s : float or None
        No run is started that would end later.
    parallel : int or None
        Runs at a time.
    """
    _check_parallel(parallel)
    campaign = _campaign(project, name, changes)
    limits: dict[str, Any] = {"stop_after_s": time_budget_s, "parallel": parallel}
    overrides = {key: value for key, value in limits.items() if value is not None}
    settings = dataclasses.replace(campaign.settings, **overrides)
    progress = dataclasses.replace(campaign, settings=settings).run()
    update_after_runs(Path())
    if as_json:
        print(json.dumps({"runs": len(progress.runs), "left": progress.left}))
    else:
        print(f"{name}: {len(progress.runs)} runs measured, {progress.left} left")
    if progress.left:
        command = f"voxcast measure --campaign {name}"
        command += f" --time-budget {time_budget_s:g}s" if time_budget_s else ""
        time_left = format_seconds(progress.left_s)
        logger.info("about %s left; continue with `%s`", time_left, command)
    return 0


def lend_cells(project: Path | None, name: str, changes: Sequence[str], *, as_json: bool) -> int:
    """Write the cells of a campaign that another machine may run."""
    path = Path("build", name, "cells.json")
    count = _campaign(project, name, changes).lend(path)
    print(json.dumps(str(path)) if as_json else f"{path}: {count} cells")
    return 0


def _campaign(project: Path | None, name: str, changes: Sequence[str]) -> Campaign:
    os.chdir(projects.require(project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    return project_campaign(name, changes)


def _check_parallel(parallel: int | None) -> None:
    cores = len(os.sched_getaffinity(0))
    if parallel is not None and parallel > cores:
        raise ConfigError(f"must be 1 to {cores} here, not {parallel}", "--parallel")


def collect_campaign(
    project: Path | None, name: str, changes: Sequence[str], *, as_json: bool
) -> None:
    """Record the runs of a campaign that are not in ``data/history/NAME`` yet."""
    parts = [str(part) for part in _campaign(project, name, changes).collect()]
    print(json.dumps(parts) if as_json else "\n".join(parts) or "nothing new")


def show_proposals(
    project: Path | None, name: str, changes: Sequence[str], count: int, *, as_json: bool
) -> int:
    """List the runs of a campaign that reduce uncertainty most for their time.

    Where runs cost much the same, runs drawn at random teach more.
    """
    from voxcast.models.next_runs import proposed_runs

    proposals = proposed_runs(_campaign(project, name, changes), count)
    if as_json:
        print(json.dumps(proposals, indent=2))
    for run in [] if as_json else proposals:
        plural = "" if run["cpus"] == 1 else "s"
        task = f"{run['app']}, {run['device']}, {run['cpus']} CPU{plural}, {run['scale']}"
        subject = f"subject {run['subject']}" if run["subject"] else run["parameters"]
        print(f"{task}: {run['image'] or subject}, about {format_seconds(run['expected_s'])}")
    if not proposals:
        logger.info("all runs of %s are on record", name)
    return 0


def show_campaign(
    project: Path | None, name: str, changes: Sequence[str], *, as_json: bool
) -> None:
    """Show which runs of a campaign are done and left."""
    from voxcast.jobs.campaign import POOL

    campaign = _campaign(project, name, changes)
    # Workers of a pool run on other machines.
    rows = campaign.status(any_host=(campaign.folder / POOL).is_dir())
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        start = f"`voxcast measure --campaign {name}` prepares its images and measures"
        print(f"{name}: nothing is measured yet; {start}")
        return
    names = ("done", "left", "local_runs")
    recorded, left, local_runs = (sum(row[name] for row in rows) for name in names)
    left_s = sum(row["left_s"] for row in rows)
    print(f"{name}: {recorded} runs done, {left} left, about {format_seconds(left_s)}")
    if local_runs:
        print(f"  on record too: {local_runs} local runs")
    heads = ("app", "scale", "CPUs", "done", "left", "time left", "noisy", "other outcomes")
    table = [heads]
    for row in rows:
        others = sorted((k, n) for k, n in row["outcomes"].items() if k != "completed")
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in others)
        numbers = (str(row["cpus"]), str(row["done"]), str(row["left"]))
        time_left = format_seconds(row["left_s"])
        table.append((row["app"], row["scale"], *numbers, time_left, str(row["noisy"]), outcomes))
    print(text_table(table, "<<>>>>><", indent="  "))


INTERRUPTED, CELLS_LEFT = 130, 1
STATES = ("running", "waiting", "given up")


def run_on_cluster(
    project: Path | None,
    name: str,
    changes: Sequence[str],
    cluster_text: str,
    time_budget_s: float | None,
    parallel: int | None,
    sbatch: Sequence[str],
    poll_s: float,
    *,
    as_json: bool,
) -> int:
    """Have workers run the cells of a campaign, and collect its runs.

    Parameters
    ----------
    cluster_text : str
        ``NAME`` or ``NAME:PARTITION``: workers are jobs of Slurm; ``local`` starts them here.
    sbatch : sequence of str
        Options of ``sbatch``, ``KEY=VALUE``.
    poll_s : float
        Time between two looks at the jobs.
    """
    from voxcast.jobs.campaign import (
        POOL,
        jobs_for,
        make_campaign_pool,
        partition_for,
        within_partition,
    )
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.slurm import SlurmExecutor, check_installed
    from voxcast.jobs.state import counts
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu

    is_local = cluster_text == LOCAL
    if is_local:
        _check_parallel(parallel)
    elif time_budget_s is not None:
        problem = "is not for jobs of Slurm, whose size follows from the cells"
        raise ConfigError(problem, "--time-budget", "leave it out")
    campaign = _campaign(project, name, changes)
    cluster_name, _, partition = cluster_text.partition(":")
    cluster = within_partition(_cluster(cluster_name), partition or None)
    slurm = SlurmOptions.from_texts(sbatch, parallel, partitions_per_cpu(cluster))
    if not is_local:
        check_installed()
    campaign.prepare()
    code = 0
    with claimed(campaign.folder / POOL) as claim:
        submission, plan = make_campaign_pool(campaign, cluster, Path.cwd(), slurm)
        follower = Follower(submission, claim=claim)
        for note in plan.notes:
            logger.info(note)
        if again := follower.retry():
            logger.info("%d that were given up are tried again", again)
        follower.settle()
        if is_local:
            _run_here(campaign, follower, time_budget_s, parallel or 1)
        else:
            partition_of = functools.partial(partition_for, cluster)
            follower.executor = SlurmExecutor(submission)
            follower.next_jobs = lambda waiting: jobs_for(
                submission.plan, follower.state.tasks, waiting, partition_of
            )
            try:
                follow(follower, poll_s, lambda: campaign.collect(submission.out))
            except KeyboardInterrupt:
                logger.warning("interrupted; jobs go on; the same command continues")
                code = INTERRUPTED
        parts = campaign.collect(submission.out)
    by_status = counts(follower.state, follower.current)
    given_up, left = by_status["given up"], by_status["running"] + by_status["waiting"]
    if not is_local and (left or given_up):
        code = code or CELLS_LEFT
    if as_json:
        summary = {"cells": by_status.total(), "recorded": by_status["completed"], "left": left}
        summary |= {name.replace(" ", "_"): by_status[name] for name in STATES}
        places = {"pool": str(submission.folder), "parts": list(map(str, parts))}
        print(json.dumps(summary | places))
        return code
    states = ", ".join(f"{by_status[name]} {name}" for name in STATES)
    print(f"{name}: {by_status['completed']} of {by_status.total()} cells done, {states}")
    if given_up:
        print("  the same command tries those that were given up again")
    if left or given_up:
        print(f"  `voxcast status {submission.folder}` shows them")
    return code


def _cluster(name: str) -> Cluster:
    from voxcast import config
    from voxcast.jobs.slurm import with_memory_counted

    cluster = config.load_submit(cluster=name, here=config.Here.of_this_machine).cluster
    return cluster if name == LOCAL else with_memory_counted(cluster)


def _run_here(
    campaign: Campaign, follower: Follower, time_budget_s: float | None, count: int
) -> None:
    """Run workers side by side, and then one with all of the machine for the rest."""
    from voxcast.jobs.campaign import run_local_workers, work_command
    from voxcast.measure.host import host_facts

    memory_bytes, submission = host_facts().memory_bytes, follower.submission
    deadline = None if time_budget_s is None else time.monotonic() + time_budget_s

    def on_progress() -> None:
        follower.step()
        logger.info("%d cells and parts done", len(follower.state.records))

    for workers in (count, 1) if count > 1 else (1,):
        memory = memory_bytes // workers
        share = [f"--cpus={len(os.sched_getaffinity(0)) // workers}", f"--memory={memory}B"]
        while follower.waiting():  # workers end when nothing waits; what failed waits again then
            if deadline is not None:
                share = [*share[:2], f"--time-budget={max(deadline - time.monotonic(), 1.0):g}s"]
            logger.info("%d workers with %s each", workers, format_bytes(memory))
            command = work_command(submission.folder, *share)
            try:
                run_local_workers(command, workers, on_progress)
            finally:
                any_ended = follower.settle()
                campaign.collect(submission.out)
            if not any_ended:
                break
