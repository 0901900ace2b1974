"""A campaign: many runs, measured in sittings and recorded, for ``voxcast measure --campaign``.

Images, catalogue and runs of a campaign are in ``data/campaigns/NAME``, separate from the
project's; its permanent record is collected in ``data/history/NAME``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.cli.machine_update import update_after_runs
from voxcast.errors import ConfigError
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    given: dict[str, Any] = {"stop_after_s": work.time_budget_s, "parallel": work.parallel}
    overrides = {key: value for key, value in given.items() if value is not None}
    settings = dataclasses.replace(campaign.settings, **overrides)
    campaign = dataclasses.replace(campaign, settings=settings)
    if work.cluster is not None:
        from voxcast.cli.measure_cluster import run_on_cluster

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
    names = ("done", "left", "repeats", "local_runs")
    recorded, left, repeats, local_runs = (sum(row[name] for row in rows) for name in names)
    left_s = sum(row["left_s"] for row in rows)
    print(f"{name}: {recorded} runs done, {left} left, about {format_seconds(left_s)}")
    if repeats or local_runs:
        print(f"  on record too: {repeats} repeats of noisy runs, {local_runs} local runs")
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
