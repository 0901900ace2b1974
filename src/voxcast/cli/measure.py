"""``voxcast measure``: time and memory of an application here, or of a campaign."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.records import App, Cell, Configuration, Phase

FAILED = 1
SCALE: Literal["full_scale"] = "full_scale"
COMMAND = "command"  # the application of conf/app that is any command line


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
    for signal_number in (signal.SIGTERM, signal.SIGHUP):  # else runs outlive this process
        signal.signal(signal_number, signal.default_int_handler)
    budget_s = options.seconds(time_budget, "--time-budget")
    if host:
        from voxcast.cli.measure_host import measure_host

        return measure_host(project, budget_s, as_json=as_json)
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
    for option, value in campaign_only.items():
        if value:
            raise ConfigError("needs --campaign", option)
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
        runs.append(_measure(app, image, number, allocated, parameters, out))
        if not as_json:
            _show(image, app, allocated, runs[-1])
    if as_json:
        print(json.dumps(runs, indent=2))
    return 0 if all(run["outcome"] == "completed" for run in runs) else FAILED


def _app_and_configuration(
    folder: Path, name: str | None, command: str | None, gpus: int
) -> tuple[App, Configuration]:
    from voxcast import config
    from voxcast.records import Configuration

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
    devices = {
        device: config.load_device(folder / config.CONF_DIR / "device", device)
        for device in app.devices
    }
    fitting = [name for name, device in devices.items() if (device.gpus > 0) == (gpus > 0)]
    if not fitting:
        kinds, then = ("GPUs", "give --gpus 1") if gpus == 0 else ("CPUs", "leave out --gpus")
        raise ConfigError(f"runs on {kinds} only", app.name, then)
    device = devices[fitting[0]]
    return app, Configuration(
        fitting[0], 1, gpus or device.gpus, device.mem_limit_bytes, device.node_type,
        device.container_engine,
    )  # fmt: skip


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
        without_sample = _phases_without_sample(phases, folder)
    result: dict[str, Any] = {
        "image": None if image is None else str(image),
        "app": app.name,
        "scale": SCALE,
    }
    result |= {"configuration": dataclasses.asdict(configuration), "parameters": parameters}
    location = {} if out is None else {"folder": str(folder)}
    result |= figures(run, phases)
    for phase, is_without in zip(result["phases"], without_sample, strict=True):
        phase["read_at_ends"] = is_without and phase["peak_rss_bytes"] is not None
    return {**result, **location}


def _phases_without_sample(phases: Sequence[Phase], folder: Path) -> list[bool]:
    from voxcast.runs.series import traces_of, without_sample

    t_s = traces_of([folder])["t_s"]
    starts, ends = ([getattr(p, name) for p in phases] for name in ("start_s", "end_s"))
    return [bool(is_without) for is_without in without_sample(t_s, starts, ends)]


def _show(image: Path | None, app: App, configuration: Configuration, run: dict[str, Any]) -> None:
    task = app.name if image is None else f"{image.name}: {app.name}"
    noisy = f", on a busy machine (load {run['load1']:.1f} before)" if run["noisy"] else ""
    print(f"{task}, {configuration.label}: {run['outcome']}{noisy}")
    memory = f"{format_bytes(run['peak_rss_bytes'])} ({run['memory_method']})"
    if not run["peak_rss_bytes"]:
        memory = "unknown (the run was too short to sample)"
    times = f"wall {format_seconds(run['runtime_s'])}, CPU {format_seconds(run['cpu_s'])}"
    print(f"  {times}, peak memory {memory}")
    for phase in run["phases"]:
        cpu = "" if phase["cpu_s"] is None else f"CPU {format_seconds(phase['cpu_s'])}"
        peak = phase["peak_rss_bytes"]
        memory = "" if peak is None else format_bytes(peak)
        wall = format_seconds(phase["end_s"] - phase["start_s"])
        mark = " *" if phase["read_at_ends"] else ""
        print(f"  {phase['name']:16}{wall:>12}  {cpu:16}{memory:>10}{mark}")
    if any(phase["read_at_ends"] for phase in run["phases"]):
        print("  * no sample lies in this phase: the run's memory at its ends")
    if "folder" in run:
        print(f"  saved in {run['folder']}")
