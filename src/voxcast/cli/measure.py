"""``voxcast measure``: an application here, how fast this machine is, or a campaign of many runs.

A campaign is measured in sittings, or as a pool of work by many workers. Its images, catalogue and
runs are in ``data/campaigns/NAME``, separate from the project's; its permanent record is collected
in ``data/history/NAME``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from voxcast import config
from voxcast import project as projects
from voxcast.api.host_speed import measure_locally, speeds_of, update_after_runs
from voxcast.apps.app import parameter_values, scaled_parameters
from voxcast.apps.checks import check_startable
from voxcast.apps.new import argv_of
from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.jobs import campaign as pools
from voxcast.jobs.campaign import POOL, run_local_workers, work_command
from voxcast.jobs.follow import Follower, follow
from voxcast.measure.host import host_class, host_facts
from voxcast.measure.processes import sweep, sweep_abandoned, temporary_folder, was_abandoned
from voxcast.measure.record import figures, log_tail, measure_app
from voxcast.measure.trace import Conditions
from voxcast.quantities import counted, format_bytes, format_seconds
from voxcast.records import App, Cell, Configuration
from voxcast.serving.model_store import ModelStore
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.measure.campaign import Campaign

FAILED, CELLS_LEFT, INTERRUPTED = 1, 1, 130  # exit codes
SCALE: Literal["full_scale"] = "full_scale"
COMMAND = "command"  # the application of conf/app that is any command line
LOCAL = "local"  # the cluster that is this machine
HOST_S = 110.0  # of local runs
STATES = ("running", "waiting", "given up")

logger = logging.getLogger(__name__)


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
    parallel: Annotated[
        int | None, Option("--parallel", metavar="N", help="Runs, or workers, at a time.", min=1)
    ] = None,
    time_budget: options.TimeBudget = None,
    cluster: options.Cluster = None,
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
    it ended. With --cluster its runs are shared by workers, jobs of Slurm or here for `local`.
    """
    options.interruptible()
    budget_s = options.seconds(time_budget, "--time-budget")
    if host:
        of_others = {"IMAGE": images, "--app": app, "--command": command, "--campaign": campaign}
        options.refuse(of_others, "is not for --host, which makes short runs of its own")
        return _measure_host(project, budget_s, as_json=as_json)
    if campaign is None and proposals is None:
        campaign_only = {
            "--lend": lend, "--parallel": parallel, "--cluster": cluster, "--sbatch": sbatch,
            "--set": changes, "--time-budget": budget_s,
        }  # fmt: skip
        options.refuse(campaign_only, "needs --campaign")
        numbers = options.counts(cpus, "--cpus") or (1,)
        app_of_runs, configuration = _app_and_configuration(
            projects.require(project), app, command, gpus
        )
        return _measure_runs(
            app_of_runs, configuration, images or [], numbers, parameters or [], out,
            as_json=as_json,
        )  # fmt: skip
    if images or app:
        raise ConfigError("has its own images and applications", "--campaign")
    if cluster in (None, LOCAL) and parallel is not None:
        _check_cores([parallel], "--parallel")
    chosen = _campaign(project, campaign or "reference", changes or ())
    if proposals is not None:
        return _show_proposals(chosen, proposals, as_json=as_json)
    if lend:
        path = Path("build", chosen.name, "cells.json")
        count = chosen.lend(path)
        return options.show(str(path), [f"{path}: {count} cells"], as_json=as_json)
    if cluster is not None:
        poll_s = options.seconds(poll, "--poll") or 30.0
        return _run_on_cluster(
            chosen, cluster, budget_s, parallel, sbatch or (), poll_s, as_json=as_json
        )
    options.refuse({"--sbatch": sbatch}, "needs --cluster")
    return _measure_campaign(chosen, budget_s, parallel, as_json=as_json)


def _check_cores(numbers: Sequence[int], option: str) -> None:
    cores = len(os.sched_getaffinity(0))
    if max(numbers) > cores:
        raise ConfigError(f"must be 1 to {cores} here, not {max(numbers)}", option)


def _measure_runs(
    app: App,
    configuration: Configuration,
    images: Sequence[Path],
    cpus: Sequence[int],
    texts: Sequence[str],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Measure each image with each number of CPUs; return the exit code, 1 if a run failed."""
    parameters = scaled_parameters(app, SCALE, parameter_values(texts, app.parameters))
    needs_none = app.input == "none"
    options.refuse_if(
        (needs_none and bool(images), "takes no image", app.name, None),
        (not needs_none and not images, "needs an image", app.name, "give one or more files"),
    )
    inputs = [None] if needs_none else [*images]
    _check_cores(cpus, "--cpus")
    for path in images:
        file_size_bytes(path)
    check_startable(app, configuration)
    sweep_abandoned()
    runs = []
    tasks = [(image, dataclasses.replace(configuration, cpus=n)) for image in inputs for n in cpus]
    for number, (image, allocated) in enumerate(tasks, 1):
        run = _measure(app, image, number, allocated, parameters, out)
        if not as_json:
            title = app.name if image is None else f"{image.name}: {app.name}"
            print("\n".join(run_lines(title, allocated.label, run)), flush=True)
        runs.append(run)
    options.show(runs, (), as_json=as_json)
    return 0 if all(run["outcome"] == "completed" for run in runs) else FAILED


def _app_and_configuration(
    folder: Path, name: str | None, command: str | None, gpus: int
) -> tuple[App, Configuration]:
    options.refuse_if(
        (command is not None and name not in (None, COMMAND), "is used instead of --app",
         "--command", "give one of them"),
        (command is None and name is None, "is missing", "--app",
         "name an application of conf/app, or give --command 'tool {image} {out}'"),
    )  # fmt: skip
    overrides: dict[str, Any] = {}
    if command is not None:
        overrides = {"argv": argv_of(command), "version": "unknown"}
    try:
        app = config.load_app(folder / config.CONF_DIR / "app", name or COMMAND, overrides)
    except ConfigError as error:
        if overrides or name != COMMAND or error.problem != "needs a value":
            raise
        then = "give --command 'tool {image} {out}'"
        raise ConfigError("needs a command line", name, then) from None
    return app, first_configuration(app, folder / config.CONF_DIR / "device", gpus)


def first_configuration(app: App, folder: Path, gpus: int | None = None) -> Configuration:
    """Return the first device of an application, with one CPU.

    Parameters
    ----------
    folder : Path
        With the files of the devices.
    gpus : int, optional
        GPUs that it has; 0 for a device without any.

    Raises
    ------
    ConfigError
        If no device of the application is such.
    """
    for name in app.devices:
        device = config.load_device(folder, name)
        if gpus is None or (device.gpus > 0) == (gpus > 0):
            return Configuration(
                name, 1, gpus or device.gpus, device.mem_limit_bytes, device.node_type,
                device.container_engine,
            )  # fmt: skip
    kinds, then = ("GPUs", "give --gpus 1") if gpus == 0 else ("CPUs", "leave out --gpus")
    raise ConfigError(f"runs on {kinds} only", app.name, then)


def _measure(
    app: App,
    image: Path | None,
    number: int,
    configuration: Configuration,
    parameters: dict[str, Any],
    out: Path | None,
) -> dict[str, Any]:
    from voxcast.runs.series import traces_of, without_sample

    with contextlib.ExitStack() as stack:
        if out is None:
            folder = Path(stack.enter_context(temporary_folder()))
        else:
            # Numbered, because images of several subjects often have the same name.
            name = app.name if image is None else image.name.split(".")[0]
            folder = out / f"{number:02d}-{name}"
            if was_abandoned(folder):
                sweep(folder)
            if folder.exists():
                raise ConfigError("already exists", folder, "choose another --out")
        try:
            (folder / "out").mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"cannot be created ({error.strerror})", folder) from None
        cell: Cell = Cell(
            app=app.name, app_version="", parameters=parameters, volume_id="", subject="",
            configuration=configuration, scale=SCALE, repeat=0, host_class="",
        )  # fmt: skip
        source = None if image is None else image.absolute()
        run, phases = measure_app(app, source, folder.absolute(), cell, Conditions())
        if run.outcome != "completed":
            print(log_tail(folder).rstrip(), file=sys.stderr)
        starts, ends = [phase.start_s for phase in phases], [phase.end_s for phase in phases]
        is_without = without_sample(traces_of([folder])["t_s"], starts, ends)
    result = {
        "image": None if image is None else str(image), "app": app.name, "scale": SCALE,
        "configuration": dataclasses.asdict(configuration), "parameters": parameters,
        **figures(run, phases), **({} if out is None else {"folder": str(folder)}),
    }  # fmt: skip
    for phase, without in zip(result["phases"], is_without, strict=True):
        phase["read_at_ends"] = bool(without) and phase["peak_rss_bytes"] is not None
    return result


def run_lines(task: str, allocation: str, run: dict[str, Any]) -> list[str]:
    """Return the figures of a run, see `voxcast.measure.record.figures`, and of its phases."""
    noisy = f", on a busy machine (load {run['load1']:.1f} before)" if run["noisy"] else ""
    memory = "unknown (the run was too short to sample)"
    if run["peak_rss_bytes"]:
        memory = f"{format_bytes(run['peak_rss_bytes'])} ({run['memory_method']})"
    wall, cpu = (format_seconds(run[name] or 0.0) for name in ("runtime_s", "cpu_s"))
    lines = [
        f"{task}, {allocation}: {run['outcome']}{noisy}",
        f"  wall {wall}, CPU {cpu}, peak memory {memory}",
    ]
    if rows := [
        (phase["name"], format_seconds(phase["end_s"] - phase["start_s"]),
         "" if phase["cpu_s"] is None else f"CPU {format_seconds(phase['cpu_s'])}",
         "" if phase["peak_rss_bytes"] is None else format_bytes(phase["peak_rss_bytes"]),
         "*" * bool(phase.get("read_at_ends")))
        for phase in run["phases"]
    ]:  # fmt: skip
        lines.append(text_table(rows, "<><><", indent="  "))
        if any(mark for *_, mark in rows):
            lines.append("  * no sample lies in this phase: the run's memory at its ends")
    return [*lines, *([f"  saved in {run['folder']}"] if "folder" in run else [])]


def _measure_host(project: Path | None, seconds: float | None, *, as_json: bool) -> int:
    """Measure the speed of this machine by short runs, and show it.

    Parameters
    ----------
    seconds : float or None
        No run is started that would end later, 110 s by default; 0 starts none.
    """
    folder = projects.find(project)
    if folder is None:
        from voxcast.config.project_files import create_project
        from voxcast.serving.prediction_service import measured_project

        folder = measured_project(create_project)
        logger.info("no project here: the reference model is measured, in %s", folder)

    os.chdir(folder)  # all paths are relative to the project
    bundle, facts = ModelStore.of(folder).open(), host_facts()
    content: dict[str, Any] = {"host": facts.host_id, "host_class": host_class(facts)}
    budget_s = HOST_S if seconds is None else seconds
    if budget_s > 0:
        content["before"] = speeds_of(bundle, facts.host_id)
        content["measured"], content["left"] = measure_locally(bundle, budget_s)
    content["apps"] = speeds_of(bundle, facts.host_id)
    return options.show(content, _host_lines(content), as_json=as_json)


def _host_lines(content: dict[str, Any]) -> Iterator[str]:
    from voxcast.models.speeds import SITTING_LASTS

    yield f"machine {content['host']}: {content['host_class']}"
    if "measured" in content:
        yield f"  {content['measured']} runs measured, {content['left']} left of this round"
    apps = content["apps"]
    if not apps:
        yield "  the model's runs do not state their machines, so it does not distinguish them"
        return
    before = content.get("before")
    titled = [("", row) for row in apps]
    if before is not None:
        titled = [(", before", row) for row in before] + [(", now", row) for row in apps]
    rows = [("", "", "speed", "5 to 95 %", "runs")]
    rows += [
        (row["app"] + title, "known" if row["calibrated"] else "not known", f"{row['speed']:.2f}",
         f"{row['lower']:.2f} to {row['upper']:.2f}", str(row["runs"]))
        for title, row in titled
    ]  # fmt: skip
    yield text_table(rows, "<<>>>", indent="  ")
    references = " and ".join(sorted({row["reference"] for row in apps}))
    yield f"  speeds are multiples of the average of {references}, where most runs were made"
    if any(row["in_sitting"] for row in apps):
        hours = SITTING_LASTS.total_seconds() / 3600
        yield f"  they hold for the last {hours:g} hours; all runs on record are counted"
    if not all(row["calibrated"] for row in apps):
        yield "  bounds are wider until the speed is known; `voxcast measure --host` measures it"


def _campaign(project: Path | None, name: str, changes: Sequence[str]) -> Campaign:
    """Return a campaign of the project, with ``KEY=VALUE`` of its configuration changed."""
    os.chdir(projects.require(project))  # all paths are relative to the project
    from voxcast.config.campaigns import project_campaign

    return project_campaign(name, changes)


def _measure_campaign(
    campaign: Campaign, budget_s: float | None, parallel: int | None, *, as_json: bool
) -> int:
    """Make the runs of a campaign that are left, and record them."""
    limits: dict[str, Any] = {"stop_after_s": budget_s, "parallel": parallel}
    changes = {key: value for key, value in limits.items() if value is not None}
    settings = dataclasses.replace(campaign.settings, **changes)
    progress = dataclasses.replace(campaign, settings=settings).run()
    update_after_runs(Path())
    content = {"runs": len(progress.runs), "left": progress.left}
    line = f"{campaign.name}: {len(progress.runs)} runs measured, {progress.left} left"
    options.show(content, [line], as_json=as_json)
    if progress.left:
        command = f"voxcast measure --campaign {campaign.name}"
        command += f" --time-budget {budget_s:g}s" if budget_s else ""
        time_left = format_seconds(progress.left_s)
        logger.info("about %s left; continue with `%s`", time_left, command)
    return 0


def collect_campaign(
    project: Path | None, name: str, changes: Sequence[str], *, as_json: bool
) -> int:
    """Record the runs of a campaign that are not in ``data/history/NAME`` yet."""
    parts = [str(part) for part in _campaign(project, name, changes).collect()]
    return options.show(parts, parts or ["nothing new"], as_json=as_json)


def _show_proposals(campaign: Campaign, count: int, *, as_json: bool) -> int:
    """List the runs of a campaign that reduce uncertainty most for their time.

    Where runs cost much the same, runs drawn at random teach more.
    """
    from voxcast.models.next_runs import proposed_runs

    proposals = proposed_runs(campaign, count)
    if not proposals:
        logger.info("all runs of %s are on record", campaign.name)
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
    campaign = _campaign(project, name, changes)
    # Workers of a pool run on other machines.
    rows = campaign.status(any_host=(campaign.folder / POOL).is_dir())
    return options.show(rows, _status_lines(name, rows), as_json=as_json)


def _status_lines(name: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        start = f"`voxcast measure --campaign {name}` prepares its images and measures"
        yield f"{name}: nothing is measured yet; {start}"
        return
    count, left, left_s, local_runs = (
        sum(row[column] for row in rows) for column in ("done", "left", "left_s", "local_runs")
    )
    yield f"{name}: {count} runs done, {left} left, about {format_seconds(left_s)}"
    if local_runs:
        yield f"  on record too: {local_runs} local runs"
    table = [("app", "scale", "CPUs", "done", "left", "time left", "noisy", "other outcomes")]
    table += [
        (row["app"], row["scale"], str(row["cpus"]), str(row["done"]), str(row["left"]),
         format_seconds(row["left_s"]), str(row["noisy"]),
         ", ".join(f"{n} {k}" for k, n in sorted(row["outcomes"].items()) if k != "completed"))
        for row in rows
    ]  # fmt: skip
    yield text_table(table, "<<>>>>><", indent="  ")


def _run_on_cluster(
    campaign: Campaign,
    cluster_text: str,
    budget_s: float | None,
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
    """
    from voxcast.jobs.claim import claimed
    from voxcast.jobs.slurm import SlurmExecutor, check_installed
    from voxcast.jobs.state import counts
    from voxcast.jobs.submission import SlurmOptions, partitions_per_cpu

    is_local = cluster_text == LOCAL
    if not is_local and budget_s is not None:
        problem = "is not for jobs of Slurm, whose size follows from the cells"
        raise ConfigError(problem, "--time-budget", "leave it out")
    cluster_name, _, partition = cluster_text.partition(":")
    site = config.current_site(config.CONF_DIR, cluster_name)
    cluster = pools.within_partition(site.cluster, partition or None)
    slurm = SlurmOptions.from_texts(sbatch, parallel, partitions_per_cpu(cluster))
    if not is_local:
        check_installed()
    campaign.prepare()
    code = 0
    with claimed(campaign.folder / pools.POOL) as claim:
        submission, plan = pools.make_campaign_pool(campaign, cluster, Path.cwd(), slurm)
        follower = Follower(submission, claim=claim)
        for note in plan.notes:
            logger.info(note)
        if again := follower.retry():
            logger.info("%d that were given up are tried again", again)
        follower.settle()
        if is_local:
            _run_here(campaign, follower, budget_s, parallel or 1)
        else:
            partition_of = functools.partial(pools.partition_for, cluster)
            follower.executor = SlurmExecutor(submission)
            follower.next_jobs = lambda waiting: pools.jobs_for(
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
    summary = {
        "cells": by_status.total(), "recorded": by_status["completed"], "left": left,
        **{name.replace(" ", "_"): by_status[name] for name in STATES},
        "pool": str(submission.folder), "parts": list(map(str, parts)),
    }  # fmt: skip
    states = ", ".join(f"{by_status[name]} {name}" for name in STATES)
    states = f"{by_status['completed']} of {by_status.total()} cells done, {states}"
    lines = [f"{campaign.name}: {states}"]
    if given_up:
        lines.append("  the same command tries those that were given up again")
    if left or given_up:
        lines.append(f"  `voxcast status {submission.folder}` shows them")
        code = code or (0 if is_local else CELLS_LEFT)
    return options.show(summary, lines, as_json=as_json) or code


def _run_here(
    campaign: Campaign, follower: Follower, time_budget_s: float | None, count: int
) -> None:
    """Run workers side by side, and then one with all of the machine for the rest."""
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
