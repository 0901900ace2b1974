"""A campaign: many runs, measured in sittings and recorded, for ``voxcast measure --campaign``.

Images, catalogue and runs of a campaign are in ``data/campaigns/NAME``, separate from the
project's; its permanent record is collected in ``data/history/NAME``.

A campaign as a pool of work, run by many workers: ``voxcast measure --cluster``.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.api.host_speed import update_after_runs
from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    line = f"{name}: {len(progress.runs)} runs measured, {progress.left} left"
    content = {"runs": len(progress.runs), "left": progress.left}
    options.show(content, [line], as_json=as_json)
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
    return options.show(str(path), [f"{path}: {count} cells"], as_json=as_json)


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
) -> int:
    """Record the runs of a campaign that are not in ``data/history/NAME`` yet."""
    parts = [str(part) for part in _campaign(project, name, changes).collect()]
    return options.show(parts, parts or ["nothing new"], as_json=as_json)


def show_proposals(
    project: Path | None, name: str, changes: Sequence[str], count: int, *, as_json: bool
) -> int:
    """List the runs of a campaign that reduce uncertainty most for their time.

    Where runs cost much the same, runs drawn at random teach more.
    """
    from voxcast.models.next_runs import proposed_runs

    proposals = proposed_runs(_campaign(project, name, changes), count)
    if not proposals:
        logger.info("all runs of %s are on record", name)
    lines = (
        f"{run['app']}, {run['device']}, {counted(run['cpus'], 'CPU')}, {run['scale']}: "
        f"{run['image'] or run['subject'] or run['parameters']}, "
        f"about {format_seconds(run['expected_s'])}"
        for run in proposals
    )
    return options.show(proposals, lines, as_json=as_json)


def show_campaign(
    project: Path | None, name: str, changes: Sequence[str], *, as_json: bool
) -> int:
    """Show which runs of a campaign are done and left."""
    from voxcast.jobs.campaign import POOL

    campaign = _campaign(project, name, changes)
    # Workers of a pool run on other machines.
    rows = campaign.status(any_host=(campaign.folder / POOL).is_dir())
    return options.show(rows, _status_lines(name, rows), as_json=as_json)


def _status_lines(name: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        start = f"`voxcast measure --campaign {name}` prepares its images and measures"
        yield f"{name}: nothing is measured yet; {start}"
        return
    recorded, left, left_s, local_runs = (
        sum(row[column] for row in rows) for column in ("done", "left", "left_s", "local_runs")
    )
    yield f"{name}: {recorded} runs done, {left} left, about {format_seconds(left_s)}"
    if local_runs:
        yield f"  on record too: {local_runs} local runs"
    table = [("app", "scale", "CPUs", "done", "left", "time left", "noisy", "other outcomes")]
    for row in rows:
        others = sorted((k, n) for k, n in row["outcomes"].items() if k != "completed")
        table.append((
            row["app"], row["scale"], str(row["cpus"]), str(row["done"]), str(row["left"]),
            format_seconds(row["left_s"]), str(row["noisy"]),
            ", ".join(f"{n} {outcome}" for outcome, n in others),
        ))  # fmt: skip
    yield text_table(table, "<<>>>>><", indent="  ")


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
    from voxcast import config
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
    site = config.current_site(config.CONF_DIR, cluster_name)
    cluster = within_partition(site.cluster, partition or None)
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
    summary = {
        "cells": by_status.total(), "recorded": by_status["completed"], "left": left,
        **{name.replace(" ", "_"): by_status[name] for name in STATES},
        "pool": str(submission.folder), "parts": list(map(str, parts)),
    }  # fmt: skip
    states = ", ".join(f"{by_status[name]} {name}" for name in STATES)
    lines = [f"{name}: {by_status['completed']} of {by_status.total()} cells done, {states}"]
    if given_up:
        lines.append("  the same command tries those that were given up again")
    if left or given_up:
        lines.append(f"  `voxcast status {submission.folder}` shows them")
    return options.show(summary, lines, as_json=as_json) or code


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
