"""``voxcast measure``: time and memory of an application here, or of a campaign."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

from typer import Option

from voxcast.cli import options
from voxcast.errors import ConfigError


def measure(
    images: options.Images = None,
    app: options.App = None,
    command: Annotated[
        str | None,
        Option(
            "--command",
            metavar="TEXT",
            help="A command line instead of --app, e.g. 'tool {image} -o {out}'.",
        ),
    ] = None,
    cpus: Annotated[
        str | None, Option("--cpus", metavar="N,N", help="Numbers of CPUs, 1 if left out.")
    ] = None,
    gpus: Annotated[
        int, Option("--gpus", metavar="N", help="1: on a GPU.", min=0, show_default=False)
    ] = 0,
    parameters: options.Parameters = None,
    time_limit: Annotated[
        str | None, Option("--time-limit", metavar="TIME", help="Stop a run after this time.")
    ] = None,
    host: Annotated[
        bool,
        Option("--host", help="Measure how fast this machine is, by short runs; a few minutes."),
    ] = False,
    campaign: Annotated[
        str | None,
        Option("--campaign", metavar="NAME", help="Measure a campaign of conf/campaign."),
    ] = None,
    proposals: Annotated[
        int | None,
        Option(
            "--next",
            metavar="N",
            min=1,
            help="List the N runs of a campaign that would teach most for their time.",
        ),
    ] = None,
    lend: Annotated[
        bool, Option("--lend", help="Write the cells of a campaign for another machine.")
    ] = False,
    any_host: Annotated[
        bool, Option("--any-host", help="Do not repeat runs recorded on other hardware.")
    ] = False,
    parallel: Annotated[
        int | None, Option("--parallel", metavar="N", help="Runs, or workers, at a time.", min=1)
    ] = None,
    time_budget: options.TimeBudget = None,
    cluster: options.Cluster = None,
    submit: Annotated[
        bool, Option("--submit", help="Submit the workers of a campaign to Slurm, and follow.")
    ] = False,
    sbatch: Annotated[
        list[str] | None,
        Option("--sbatch", metavar="KEY=VALUE", help="An option of sbatch, e.g. account=mri."),
    ] = None,
    poll: Annotated[str, Option("--poll", hidden=True)] = "30s",
    changes: options.Set = None,
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Keep logs, samples and results here.")
    ] = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Run an application on images here, and show wall and CPU time, memory and phases.

    With --campaign, measure many runs in sittings and record them: the same command goes on where
    it ended. With --cluster its runs are shared by workers on a cluster, or here for `local`.
    """
    for signal_number in (signal.SIGTERM, signal.SIGHUP):  # else runs outlive this process
        signal.signal(signal_number, signal.default_int_handler)
    budget_s = options.seconds(time_budget, "--time-budget")
    if host:
        from voxcast.cli.measure_host import measure_host

        return measure_host(project, budget_s, as_json=as_json)
    if campaign is not None or proposals is not None:
        from voxcast.cli.measure_campaign import Work, measure_campaign, show_proposals

        name = campaign or "reference"
        if images or app:
            raise ConfigError("has its own images and applications", "--campaign")
        if proposals is not None:
            return show_proposals(project, name, changes or [], proposals, as_json=as_json)
        work = Work(
            budget_s, parallel, cluster, submit, tuple(sbatch or ()),
            options.seconds(poll, "--poll") or 30.0,
        )  # fmt: skip
        return measure_campaign(
            project, name, changes or [], work, lend=lend, any_host=any_host, as_json=as_json
        )
    campaign_only = {
        "--lend": lend, "--any-host": any_host, "--parallel": parallel, "--cluster": cluster,
        "--submit": submit, "--sbatch": sbatch, "--set": changes,
        "--time-budget": budget_s,
    }  # fmt: skip
    for option, value in campaign_only.items():
        if value:
            raise ConfigError("needs --campaign", option)
    from voxcast.cli.measure_runs import measure_runs

    return measure_runs(
        project,
        images or [],
        app,
        command,
        options.counts(cpus, "--cpus") or (1,),
        gpus,
        parameters or [],
        options.seconds(time_limit, "--time-limit"),
        out,
        as_json=as_json,
    )
