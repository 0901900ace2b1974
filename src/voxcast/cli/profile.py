"""``voxcast profile IMAGE… --app NAME``: run an application here and show its time and memory."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.run_options import add_parameter_argument
from voxcast.cli.shared_options import add_project_argument, cpu_counts
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from voxcast.records import App, Cell, Configuration, Phase

logger = logging.getLogger(__name__)

FAILED = 1


def main(argv: list[str]) -> int:
    """Measure each image and print wall and CPU time, peak memory, phases, outcome."""
    parser = VerbParser(prog="voxcast profile", description=__doc__)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE")
    parser.add_argument("--app", help="an application of conf/app")
    parser.add_argument(
        "--next",
        type=int,
        metavar="N",
        dest="count",
        help="run nothing; list the N runs that reduce uncertainty most for their time; where "
        "runs cost much the same, runs drawn at random teach more",
    )
    parser.add_argument("--campaign", default="reference", help="--next: name of the campaign")
    parser.add_argument(
        "-S", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="--next: change the configuration, as with voxcast campaign",
    )  # fmt: skip
    parser.add_argument("--device", default="cpu", help="a device of conf/device (default: cpu)")
    parser.add_argument(
        "--cpus", type=cpu_counts, default=(1,), metavar="N,N", help="numbers of CPUs (default 1)"
    )
    add_parameter_argument(parser)
    parser.add_argument("--scale", choices=("full_scale", "scaled_down"), default="full_scale")
    parser.add_argument("--argv", help="command line of an application that defines none, "
                        "e.g. 'tool {image} -o {out}'")  # fmt: skip
    parser.add_argument("--time-limit", type=float, metavar="S", help="stop it after S seconds")
    parser.add_argument("--out", type=Path, help="folder for log, samples and results")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_intermixed_args(argv)
    if args.count is not None:
        return _show_proposals(args)
    if args.app is None:
        parser.error("the following arguments are required: --app")
    for signal_number in (signal.SIGTERM, signal.SIGHUP):  # else the run outlives this process
        signal.signal(signal_number, signal.default_int_handler)
    from voxcast.apps.checks import check_startable
    from voxcast.measure.leftovers import sweep_abandoned

    app, configuration = _app_and_configuration(args)
    parameters = _app_parameters(app, args)
    images: list[Path | None] = [*args.images]
    if app.input == "none":
        if images:
            raise ConfigError("takes no image", app.name)
        images = [None]
    elif not images:
        raise ConfigError("needs an image", app.name, "give one or more files")
    if args.time_limit is not None and not args.time_limit > 0:
        raise ConfigError(f"must be above zero, not {args.time_limit:g}", "--time-limit")
    cores = len(os.sched_getaffinity(0))
    if not 1 <= min(args.cpus) <= max(args.cpus) <= cores:
        raise ConfigError(f"must be 1 to {cores} here, not {max(args.cpus)}", "--cpus")
    for image in images:
        if image is not None:
            file_size_bytes(image)
    check_startable(app, configuration)
    sweep_abandoned()
    runs = []
    tasks = [
        (image, dataclasses.replace(configuration, cpus=n)) for image in images for n in args.cpus
    ]
    for number, (image, allocated) in enumerate(tasks, 1):
        runs.append(_measure(app, image, number, allocated, parameters, args))
        if not args.json:
            _show(image, app, allocated, args.scale, runs[-1])
    if args.json:
        print(json.dumps(runs, indent=2))
    return 0 if all(run["outcome"] == "completed" for run in runs) else FAILED


def _show_proposals(args: argparse.Namespace) -> int:
    from voxcast.config.campaigns import project_campaign
    from voxcast.models.proposals import proposed_runs

    if args.count < 1:
        raise ConfigError(f"must be at least 1, not {args.count}", "--next")
    folder = project.require(args.project)
    with contextlib.chdir(folder):  # all paths are relative to the project
        proposals = proposed_runs(project_campaign(args.campaign, args.overrides), args.count)
    if args.json:
        print(json.dumps(proposals, indent=2))
    for run in [] if args.json else proposals:
        plural = "" if run["cpus"] == 1 else "s"
        task = f"{run['app']}, {run['device']}, {run['cpus']} CPU{plural}, {run['scale']}"
        subject = f"subject {run['subject']}" if run["subject"] else run["parameters"]
        print(f"{task}: {run['image'] or subject}, about {format_seconds(run['expected_s'])}")
    if not proposals:
        logger.info("all runs of %s are on record", args.campaign)
    return 0


def _app_and_configuration(args: argparse.Namespace) -> tuple[App, Configuration]:
    from voxcast import config
    from voxcast.records import Configuration

    folder = project.require(args.project)
    overrides: dict[str, Any] = {}
    if args.argv is not None:
        if not args.argv.strip():
            raise ConfigError("is empty", "--argv", "give e.g. --argv 'tool {image} {out}'")
        try:
            overrides = {"argv": shlex.split(args.argv), "version": "unknown"}
        except ValueError as error:
            raise ConfigError(f"cannot be split into words ({error})", "--argv") from None
    try:
        app = config.load_app(folder / config.CONF_DIR / "app", args.app, overrides)
    except ConfigError as error:
        if overrides or args.app != "command" or error.problem != "needs a value":
            raise
        fix = "give --argv 'tool {image} {out}'"
        raise ConfigError("needs a command line", args.app, fix) from None
    devices = config.options(folder / config.CONF_DIR / "device")
    if args.device not in devices:
        raise ConfigError("unknown device", args.device, f"choose from {', '.join(devices)}")
    if args.device not in app.devices:
        names = ", ".join(app.devices)
        raise ConfigError(f"does not run on {args.device}", app.name, f"it runs on: {names}")
    device = config.load_device(folder / config.CONF_DIR / "device", args.device)
    return app, Configuration(
        device=args.device,
        cpus=args.cpus[0],
        gpus=device.gpus,
        mem_limit_bytes=device.mem_limit_bytes,
        node_type=device.node_type,
        container_engine=device.container_engine,
    )


def _app_parameters(app: App, args: argparse.Namespace) -> dict[str, Any]:
    from voxcast.apps.parameters import parameter_values, scaled_parameters

    overrides = parameter_values(args.parameters, app.parameters)
    return scaled_parameters(app, args.scale, overrides)


def _measure(
    app: App,
    image: Path | None,
    number: int,
    configuration: Configuration,
    parameters: dict[str, Any],
    args: argparse.Namespace,
) -> dict[str, Any]:
    from voxcast.measure.leftovers import sweep, was_abandoned
    from voxcast.measure.record import figures, log_tail, measure_app
    from voxcast.measure.trace import Conditions
    from voxcast.measure.tree import temporary_folder
    from voxcast.records import Cell

    with contextlib.ExitStack() as stack:
        if args.out is None:
            folder = Path(stack.enter_context(temporary_folder()))
        else:
            # Numbered, because images of several subjects often have the same name.
            name = app.name if image is None else image.name.split(".")[0]
            folder = args.out / f"{number:02d}-{name}"
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
            configuration=configuration, scale=args.scale, repeat=0, host_class="",
        )  # fmt: skip
        source = None if image is None else image.absolute()
        run, phases = measure_app(
            app, source, folder.absolute(), cell, Conditions(args.time_limit)
        )
        if run.outcome != "completed":
            print(log_tail(folder).rstrip(), file=sys.stderr)
        without_sample = _phases_without_sample(phases, folder)
    result = {"image": None if image is None else str(image), "app": app.name, "scale": args.scale}
    result |= {"configuration": dataclasses.asdict(configuration), "parameters": parameters}
    location = {} if args.out is None else {"folder": str(folder)}
    result |= figures(run, phases)
    for phase, is_without in zip(result["phases"], without_sample, strict=True):
        phase["read_at_ends"] = is_without and phase["peak_rss_bytes"] is not None
    return {**result, **location}


def _phases_without_sample(phases: Sequence[Phase], folder: Path) -> list[bool]:
    from voxcast.runs.series import traces_of, without_sample

    t_s = traces_of([folder])["t_s"]
    starts, ends = ([getattr(p, name) for p in phases] for name in ("start_s", "end_s"))
    return [bool(is_without) for is_without in without_sample(t_s, starts, ends)]


def _show(
    image: Path | None, app: App, configuration: Configuration, scale: str, run: dict[str, Any]
) -> None:
    task = app.name if image is None else f"{image.name}: {app.name}"
    scaled = ", scaled down" if scale == "scaled_down" else ""
    noisy = f", on a busy machine (load {run['load1']:.1f} before)" if run["noisy"] else ""
    print(f"{task}, {configuration.label}{scaled}: {run['outcome']}{noisy}")
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
