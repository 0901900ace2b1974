"""An application, run on images here and measured, for ``voxcast measure IMAGE``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voxcast import project as projects
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.records import App, Cell, Configuration, Phase

FAILED = 1
SCALE: Literal["full_scale"] = "full_scale"
COMMAND = "command"  # the application of conf/app that is any command line


def measure_runs(
    project: Path | None,
    images: Sequence[Path],
    app_name: str | None,
    command: str | None,
    cpus: Sequence[int],
    gpus: int,
    texts: Sequence[str],
    time_limit_s: float | None,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Measure each image with each number of CPUs; return the exit code, 1 if a run failed.

    Raises
    ------
    VoxcastError
        If the application, its parameters or an image cannot be used.
    """
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
    if time_limit_s is not None and not time_limit_s > 0:
        raise ConfigError("must be above zero", "--time-limit")
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
        runs.append(_measure(app, image, number, allocated, parameters, time_limit_s, out))
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
    time_limit_s: float | None,
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
        run, phases = measure_app(app, source, folder.absolute(), cell, Conditions(time_limit_s))
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
