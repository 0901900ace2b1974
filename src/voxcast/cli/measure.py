"""``voxcast measure``: time and memory of an application, or how fast this machine is."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.quantities import format_bytes, format_seconds
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from voxcast.records import App, Cell, Configuration

FAILED = 1
SCALE: Literal["full_scale"] = "full_scale"
COMMAND = "command"  # the application of conf/app that is any command line
HOST_S = 110.0  # of local runs

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
    if campaign is not None or proposals is not None:
        from voxcast.cli import measure_campaign as campaigns

        name, settings = campaign or "reference", changes or []
        if images or app:
            raise ConfigError("has its own images and applications", "--campaign")
        if proposals is not None:
            return campaigns.show_proposals(project, name, settings, proposals, as_json=as_json)
        if lend:
            return campaigns.lend_cells(project, name, settings, as_json=as_json)
        if cluster is not None:
            return campaigns.run_on_cluster(
                project, name, settings, cluster, budget_s, parallel, sbatch or (),
                options.seconds(poll, "--poll") or 30.0, as_json=as_json,
            )  # fmt: skip
        if sbatch:
            raise ConfigError("needs --cluster", "--sbatch")
        return campaigns.measure_campaign(
            project, name, settings, budget_s, parallel, as_json=as_json
        )
    campaign_only = {
        "--lend": lend, "--parallel": parallel, "--cluster": cluster, "--sbatch": sbatch,
        "--set": changes, "--time-budget": budget_s,
    }  # fmt: skip
    options.refuse(campaign_only, "needs --campaign")
    numbers = options.counts(cpus, "--cpus") or (1,)
    return _measure_runs(
        project, images or [], app, command, numbers, gpus, parameters or [], out, as_json=as_json
    )


def _measure_runs(
    project: Path | None,
    images: Sequence[Path],
    app_name: str | None,
    command: str | None,
    cpus: Sequence[int],
    gpus: int,
    texts: Sequence[str],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Measure each image with each number of CPUs; return the exit code, 1 if a run failed."""
    from voxcast.apps.app import parameter_values, scaled_parameters
    from voxcast.apps.checks import check_startable
    from voxcast.measure.processes import sweep_abandoned

    app, configuration = _app_and_configuration(projects.require(project), app_name, command, gpus)
    parameters = scaled_parameters(app, SCALE, parameter_values(texts, app.parameters))
    inputs: list[Path | None] = [*images]
    if app.input == "none":
        if images:
            raise ConfigError("takes no image", app.name)
        inputs = [None]
    elif not images:
        raise ConfigError("needs an image", app.name, "give one or more files")
    cores = len(os.sched_getaffinity(0))
    if max(cpus) > cores:
        raise ConfigError(f"must be 1 to {cores} here, not {max(cpus)}", "--cpus")
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
    from voxcast import config

    overrides: dict[str, Any] = {}
    if command is not None:
        if name not in (None, COMMAND):
            raise ConfigError("is used instead of --app", "--command", "give one of them")
        if not command.strip():
            raise ConfigError("is empty", "--command", "give e.g. --command 'tool {image} {out}'")
        try:
            overrides = {"argv": shlex.split(command), "version": "unknown"}
        except ValueError as error:
            raise ConfigError(f"cannot be split into words ({error})", "--command") from None
    elif name is None:
        then = "name an application of conf/app, or give --command 'tool {image} {out}'"
        raise ConfigError("is missing", "--app", then)
    try:
        app = config.load_app(folder / config.CONF_DIR / "app", name or COMMAND, overrides)
    except ConfigError as error:
        if overrides or name != COMMAND or error.problem != "needs a value":
            raise
        fix = "give --command 'tool {image} {out}'"
        raise ConfigError("needs a command line", name, fix) from None
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
    from voxcast import config
    from voxcast.records import Configuration

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
    from voxcast.measure.processes import sweep, temporary_folder, was_abandoned
    from voxcast.measure.record import figures, log_tail, measure_app
    from voxcast.measure.trace import Conditions
    from voxcast.records import Cell
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
        ends = [getattr(phase, name) for name in ("start_s", "end_s") for phase in phases]
        is_without = without_sample(
            traces_of([folder])["t_s"], ends[: len(phases)], ends[len(phases) :]
        )
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
    memory = f"{format_bytes(run['peak_rss_bytes'])} ({run['memory_method']})"
    if not run["peak_rss_bytes"]:
        memory = "unknown (the run was too short to sample)"
    wall, cpu = (format_seconds(run[name] or 0.0) for name in ("runtime_s", "cpu_s"))
    lines = [
        f"{task}, {allocation}: {run['outcome']}{noisy}",
        f"  wall {wall}, CPU {cpu}, peak memory {memory}",
    ]
    for phase in run["phases"]:
        cpu = "" if phase["cpu_s"] is None else f"CPU {format_seconds(phase['cpu_s'])}"
        peak = phase["peak_rss_bytes"]
        memory = "" if peak is None else format_bytes(peak)
        wall = format_seconds(phase["end_s"] - phase["start_s"])
        mark = " *" if phase.get("read_at_ends") else ""
        lines.append(f"  {phase['name']:16}{wall:>12}  {cpu:16}{memory:>10}{mark}".rstrip())
    if any(phase.get("read_at_ends") for phase in run["phases"]):
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
    from voxcast.api.host_speed import measure_locally, speeds_of
    from voxcast.measure.host import host_class, host_facts
    from voxcast.serving.model_store import ModelStore

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
    rows: list[tuple[str, ...]] = [("", "", "speed", "5 to 95 %", "runs")]
    for title, speeds in (("before", content.get("before", ())), ("now", apps)):
        for row in speeds:
            interval = f"{row['lower']:.2f} to {row['upper']:.2f}"
            label = f"{row['app']}, {title}" if "before" in content else row["app"]
            state = "known" if row["calibrated"] else "not known"
            rows.append((label, state, f"{row['speed']:.2f}", interval, str(row["runs"])))
    yield text_table(rows, "<<>>>", indent="  ")
    references = " and ".join(sorted({row["reference"] for row in apps}))
    yield f"  speeds are multiples of the average of {references}, where most runs were made"
    if any(row["in_sitting"] for row in apps):
        hours = SITTING_LASTS.total_seconds() / 3600
        yield f"  they hold for the last {hours:g} hours; all runs on record are counted"
    if not all(row["calibrated"] for row in apps):
        yield "  bounds are wider until the speed is known; `voxcast measure --host` measures it"
