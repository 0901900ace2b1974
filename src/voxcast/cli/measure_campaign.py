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
from voxcast.cli.cell_forecasts import cell_forecasts
from voxcast.cli.measure_host import update_after_runs
from voxcast.errors import ConfigError
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from voxcast.allocation.site import Cluster
    from voxcast.jobs.follow import Follower
    from voxcast.measure.campaign import Campaign
    from voxcast.records import Request


LOCAL = "local"  # the cluster that is this machine

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Work:
    """How the runs of a campaign are made.

    Attributes
    ----------
    time_budget_s : float or None
        No run is started that would end later.
    parallel : int or None
        Runs at a time on this machine, or workers at a time on a cluster.
    cluster : str or None
        ``NAME`` or ``NAME:PARTITION``, on which workers share the runs; ``local`` is this machine.
    submit : bool
        Whether the workers are submitted to Slurm and followed.
    sbatch : tuple of str
        Options of ``sbatch``, ``KEY=VALUE``.
    poll_s : float
        Time between two looks at the jobs.
    """

    time_budget_s: float | None = None
    parallel: int | None = None
    cluster: str | None = None
    submit: bool = False
    sbatch: tuple[str, ...] = ()
    poll_s: float = 30.0

    def checked(self) -> Work:
        """Return the same.

        Raises
        ------
        ConfigError
            If its options do not go together.
        """
        if self.submit and self.cluster in (None, LOCAL):
            then = "name a cluster of conf/cluster that has Slurm"
            raise ConfigError("needs --cluster, and not `local`", "--submit", then)
        if self.submit and self.time_budget_s is not None:
            problem = "is not for jobs of Slurm, whose size follows from the cells"
            raise ConfigError(problem, "--time-budget", "leave it out with --submit")
        if self.submit:
            return self
        if self.sbatch:
            raise ConfigError("needs --submit", "--sbatch")
        cores = len(os.sched_getaffinity(0))
        if self.parallel is not None and self.parallel > cores:
            raise ConfigError(f"must be 1 to {cores} here, not {self.parallel}", "--parallel")
        return self


def measure_campaign(
    project: Path | None,
    name: str,
    changes: Sequence[str],
    work: Work,
    *,
    lend: bool,
    any_host: bool,
    as_json: bool,
) -> int:
    """Make the runs of a campaign that are left, and record them; return the exit code.

    Parameters
    ----------
    changes : sequence of str
        ``KEY=VALUE`` of the configuration.
    lend : bool
        Only write the cells that another machine may run.
    any_host : bool
        Whether runs on other hardware count as done.
    """
    work.checked()
    os.chdir(projects.require(project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    campaign = project_campaign(name, changes)
    if lend:
        path = Path("build", name, "cells.json")
        count = campaign.lend(path)
        print(json.dumps(str(path)) if as_json else f"{path}: {count} cells")
        return 0
    limits: dict[str, Any] = {"stop_after_s": work.time_budget_s, "parallel": work.parallel}
    overrides = {key: value for key, value in limits.items() if value is not None}
    settings = dataclasses.replace(campaign.settings, **overrides)
    campaign = dataclasses.replace(campaign, settings=settings)
    if work.cluster is not None:
        return run_on_cluster(campaign, work, as_json=as_json)
    progress = campaign.run(any_host=any_host)
    update_after_runs(Path())
    if as_json:
        print(json.dumps({"runs": len(progress.runs), "left": progress.left}))
    else:
        print(f"{name}: {len(progress.runs)} runs measured, {progress.left} left")
    if progress.left:
        command = f"voxcast measure --campaign {name}"
        command += f" --time-budget {work.time_budget_s:g}s" if work.time_budget_s else ""
        time_left = format_seconds(progress.left_s)
        logger.info("about %s left; continue with `%s`", time_left, command)
    return 0


def collect_campaign(
    project: Path | None, name: str, changes: Sequence[str], *, as_json: bool
) -> None:
    """Record the runs of a campaign that are not in ``data/history/NAME`` yet."""
    os.chdir(projects.require(project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    parts = [str(part) for part in project_campaign(name, changes).collect()]
    print(json.dumps(parts) if as_json else "\n".join(parts) or "nothing new")


def show_proposals(
    project: Path | None, name: str, changes: Sequence[str], count: int, *, as_json: bool
) -> int:
    """List the runs of a campaign that reduce uncertainty most for their time.

    Where runs cost much the same, runs drawn at random teach more.
    """
    from voxcast.config.campaigns import project_campaign
    from voxcast.models.next_runs import proposed_runs

    os.chdir(projects.require(project))  # all paths are relative to the project
    proposals = proposed_runs(project_campaign(name, changes), count)
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
    project: Path | None, name: str, changes: Sequence[str], *, any_host: bool, as_json: bool
) -> None:
    """Show which runs of a campaign are done and left."""
    os.chdir(projects.require(project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    rows = project_campaign(name, changes).status(any_host=any_host)
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
    print(_line("app", "scale", "CPUs", "done", "left", "time left", "noisy",
                "other outcomes"))  # fmt: skip
    for row in rows:
        counts = {k: v for k, v in row["outcomes"].items() if k != "completed"}
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
        time_left = format_seconds(row["left_s"])
        print(_line(row["app"], row["scale"], row["cpus"], row["done"], row["left"], time_left,
                    row["noisy"], outcomes))  # fmt: skip


def _line(app: object, scale: object, *others: object) -> str:
    widths = (5, 6, 6, 14, 7)
    numbers = "".join(f"{value!s:>{width}}" for value, width in zip(others, widths, strict=False))
    return f"  {app!s:15}{scale!s:12}{numbers}  {others[-1]}".rstrip()


INTERRUPTED, CELLS_LEFT = 130, 1
STATES = ("running", "waiting", "given up")


def run_on_cluster(campaign: Campaign, work: Work, *, as_json: bool) -> int:
    """Have workers run the cells of a campaign, and collect its runs.

    On this machine workers are started here; with ``--submit`` they are jobs of Slurm. Otherwise
    the command that starts them is printed, and the same command says how far they are.
    """
    from voxcast.jobs.campaign import (
        POOL,
        WorkerJobs,
        jobs_for,
        make_campaign_pool,
        partition_for,
        within_partition,
    )
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.follow import Follower, follow
    from voxcast.jobs.script import array_line
    from voxcast.jobs.slurm import SlurmExecutor, check_installed
    from voxcast.jobs.state import counts
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu

    name, _, partition = str(work.cluster).partition(":")
    cluster = within_partition(_cluster(name), partition or None)
    per_cpu = partitions_per_cpu(cluster)
    options = SlurmOptions.from_texts(work.sbatch, work.parallel, per_cpu)
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
            follower.next_jobs = next_jobs
            try:
                follow(follower, work.poll_s, lambda: campaign.collect(submission.out))
            except KeyboardInterrupt:
                logger.warning("interrupted; jobs go on; the same command continues")
                code = INTERRUPTED
        elif cluster.name == LOCAL:
            _run_here(campaign, follower, work)
        parts = campaign.collect(submission.out)
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
    from voxcast.jobs.campaign import run_local_workers, work_command
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
            command = work_command(submission.folder, *share, *budget)
            try:
                run_local_workers(command, workers, on_progress)
            finally:
                any_ended = follower.settle()
                campaign.collect(submission.out)
            if not any_ended:
                break
