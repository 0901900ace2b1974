"""``voxcast app new|list|show NAME``: describe an application by its command line, and try it.

`new` writes ``conf/app/NAME.yaml`` and runs the command once on a small image, never through a
shell. ``{image}``, ``{out}`` (a fresh folder), ``{cpus}`` and parameters are filled in; ``{bids}``
is a BIDS dataset with that one image. Nothing is written if the trial fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.app_list import list_apps, show_app
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.quantities import format_bytes, format_seconds

if TYPE_CHECKING:
    from voxcast.apps.new import AppTemplate
    from voxcast.measure.record import AppTrial
    from voxcast.records import App, Configuration

CONF_APP, CONF_DEVICE = Path("conf/app"), Path("conf/device")
CATALOGUE = Path("data/catalogue/catalogue.parquet")
FAILED = 1
MAX_HASHED_BYTES = 50_000_000


def main(argv: list[str]) -> int:
    """Describe, list or show applications."""
    args = _arguments(argv)
    # Otherwise the run of a trial would outlive this process.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.default_int_handler)
    image = None if args.image is None else args.image.expanduser().absolute()
    if image is not None:
        file_size_bytes(image)
    start = Path.cwd()
    os.chdir(project.require(args.project))  # all other paths are relative to the project
    if args.action == "list":
        return list_apps(as_json=args.json)
    if args.name is None:
        raise ConfigError("needs the name of an application", f"app {args.action}")
    if args.action == "show":
        return show_app(args.name, as_json=args.json)
    return _new(args, image, start)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    if rest and args.command is not None:
        then = "write --command 'tool --in {image} --out {out}'"
        raise ConfigError(f"needs quotes around the whole command line: {args.command}",
                          "--command", then)  # fmt: skip
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def _parser() -> argparse.ArgumentParser:
    from voxcast.apps.new import template_names

    # No abbreviations: options of a command without quotes must not become ours.
    parser = VerbParser(
        prog="voxcast app", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("action", choices=("new", "list", "show"))
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument(
        "--command", help="new: e.g. 'tool --in {image} --out {out} --threads {cpus}'"
    )
    parser.add_argument(
        "--template", metavar="TEMPLATE",
        help=f"new: one of {', '.join(template_names())}; not run here",
    )  # fmt: skip
    parser.add_argument(
        "--container", action="store_true", help="new: in the container of the template"
    )
    parser.add_argument(
        "-p", "--parameter", dest="parameters", action="append", default=[], metavar="NAME=VALUE",
        help="new: a parameter, filled in as {NAME}; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--version-command", help="new: command that prints the version, e.g. 'tool --version'"
    )
    parser.add_argument(
        "--image", type=Path, help="new: image to try it on (default: the smallest on record)"
    )
    parser.add_argument("--cpus", type=int, default=1, help="new: CPUs of the trial (default: 1)")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S",
        help="new: stop the trial after S seconds (default: 600)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="new: overwrite the file")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    add_project_argument(parser)
    return parser


def _new(args: argparse.Namespace, image: Path | None, start: Path) -> int:
    from voxcast.apps.checks import DOUBTFUL, STOPS, Gap, gaps_of
    from voxcast.apps.new import check_name, write_app
    from voxcast.config.load import app_of
    from voxcast.measure.record import figures

    check_name(args.name)
    path = CONF_APP / f"{args.name}.yaml"
    if path.exists() and not args.force:
        raise ConfigError("exists already", path, "choose another name, or give --force")
    template = _template(args)
    values = _values(args, template, start)
    app = app_of(CONF_APP, args.name, values)
    configuration = _configuration(app, args.cpus)
    image = image or _smallest_image()
    trial = None
    # A template may be written before its tool is installed.
    stopped = any(gap.urgency == STOPS for gap in gaps_of(app, configuration))
    if image is not None and not stopped:
        trial = _try(app, image, configuration, args.time_limit)
        if trial.run.outcome not in ("completed", "timeout"):
            print(trial.log.rstrip(), file=sys.stderr)
            _print_trial(app, image, configuration, trial)
            print("nothing was written; mend the command and run it again", file=sys.stderr)
            return FAILED
        values |= _values_of_trial(app, trial)
        app = app_of(CONF_APP, args.name, values)
    write_app(path, args.name, values, _comments(template, trial))
    gaps = gaps_of(app, configuration, **_findings(trial))
    if trial is None and not stopped:
        gaps.insert(0, Gap(DOUBTFUL, "it was not tried: give --image"))
    if args.json:
        run = None if trial is None else figures(trial.run, trial.phases)
        missing = [asdict(gap) for gap in gaps]
        print(json.dumps({"file": str(path), "app": asdict(app), "trial": run, "missing": missing},
                         indent=2))  # fmt: skip
        return 0
    if trial is not None and image is not None:
        _print_trial(app, image, configuration, trial)
    print(f"{'written':12} {path}")
    for note in () if template is None else template.notes:
        print(f"{'note':12} {note}")
    for gap in gaps:
        print(f"{gap.urgency:12} {gap.text}")
    print(f"{'next':12} voxcast learn IMAGES --app {args.name}")
    return 0


def _template(args: argparse.Namespace) -> AppTemplate | None:
    from voxcast.apps.new import load_template

    if (args.command is None) == (args.template is None):
        then = "give e.g. --command 'tool --in {image} --out {out}', or --template recon-all"
        raise ConfigError("needs --command or --template, and not both", "app new", then)
    if args.container and args.template is None:
        raise ConfigError("needs a --template", "--container")
    return None if args.template is None else load_template(args.template)


def _values(args: argparse.Namespace, template: AppTemplate | None, start: Path) -> dict[str, Any]:
    """Return the values of the file, before the trial."""
    from voxcast.apps.checks import UNKNOWN_VERSION, check_program
    from voxcast.apps.new import argv_of, printed_version
    from voxcast.apps.parameters import parameter_values

    values = {} if template is None else template.values(in_container=args.container)
    if args.command is not None:
        program, *arguments = argv_of(args.command)
        # Runs have folders of their own, so that a relative path would not lead to it.
        values["argv"] = [str(start / program) if "/" in program else program, *arguments]
        check_program(values["argv"][0])
    parameters = {**values.get("parameters", {}), **parameter_values(args.parameters)}
    if parameters:
        values["parameters"] = parameters
    version_command = args.version_command
    if version_command is None and template is not None and shutil.which(values["argv"][0]):
        version_command = template.version_command
    if version_command is not None:
        return {"version": printed_version(argv_of(version_command)), **values}
    program_path = shutil.which(values["argv"][0])
    # Without a command the version is the hash of the program's file.
    if (
        program_path
        and not args.container
        and Path(program_path).stat().st_size <= MAX_HASHED_BYTES
    ):
        values["files"] = [program_path]
    return {"version": UNKNOWN_VERSION, **values}


def _configuration(app: App, cpus: int) -> Configuration:
    from voxcast import config
    from voxcast.records import Configuration

    cores = len(os.sched_getaffinity(0))
    if not 1 <= cpus <= cores:
        raise ConfigError(f"must be 1 to {cores} here, not {cpus}", "--cpus")
    device = config.load_device(CONF_DEVICE, app.devices[0])
    return Configuration(
        app.devices[0], cpus, device.gpus, device.mem_limit_bytes, device.node_type,
        device.container_engine,
    )  # fmt: skip


def _smallest_image() -> Path | None:
    if not CATALOGUE.is_file():
        return None
    import pandas as pd

    catalogue = pd.read_parquet(CATALOGUE)
    usable = catalogue[catalogue["problem"].isna()].copy()
    usable["voxels"] = usable[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1)
    paths = [Path(path) for path in usable.sort_values("voxels")["path"]]
    return next((path for path in paths if path.is_file()), None)


def _try(app: App, image: Path, configuration: Configuration, time_limit_s: float) -> AppTrial:
    from voxcast.apps.checks import check_startable
    from voxcast.measure.record import try_app

    if not time_limit_s > 0:
        raise ConfigError(f"must be above zero, not {time_limit_s:g}", "--time-limit")
    check_startable(app, configuration)
    print(f"trying {app.name} on {image.name}, {configuration.label}, for at most "
          f"{format_seconds(time_limit_s)}", file=sys.stderr)  # fmt: skip
    return try_app(app, image, configuration, time_limit_s)


def _findings(trial: AppTrial | None) -> dict[str, bool]:
    if trial is None:
        return {}
    results = {"wrote_files": bool(trial.files), "has_phases": bool(trial.phases)}
    return {"timed_out": trial.run.outcome == "timeout", **results}


def _values_of_trial(app: App, trial: AppTrial) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if trial.run.outcome == "completed":
        values |= trial.expected_s
    if trial.proposal:
        values |= {"phases": list(trial.proposal), "phase_patterns": trial.proposal}
    return values


def _comments(template: AppTemplate | None, trial: AppTrial | None) -> list[str]:
    comments = []
    if template is not None:
        comments += [f"{template.description}.", "From public documentation, not run here:"]
        comments += [f"  {source}" for source in template.sources]
        comments += template.notes
    if trial is not None and trial.proposal:
        comments.append("The phases are proposed from the log of a trial.")
    if trial is not None and trial.run.outcome == "completed":
        comments.append("The expected times are those of a trial on one image.")
    return comments


def _print_trial(app: App, image: Path, configuration: Configuration, trial: AppTrial) -> None:
    run = trial.run
    print(f"{app.name} on {image.name}, {configuration.label}: {run.outcome}")
    memory = format_bytes(run.peak_rss_bytes) if run.peak_rss_bytes else "unknown"
    wall, cpu = (format_seconds(seconds or 0.0) for seconds in (run.runtime_s, run.cpu_s))
    print(f"  wall {wall}, CPU {cpu}, peak memory {memory} ({run.memory_method})")
    for phase in trial.phases:
        print(f"  {phase.name:24} {format_seconds(phase.duration_s):>10}")
    if trial.proposal:
        print(f"{'phases':12} {len(trial.proposal)}, proposed from its log")
