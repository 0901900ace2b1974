"""``voxcast app new|list|show``: applications, described by their command lines and tried."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from voxcast import project as projects
from voxcast.cli import options
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

Name = Annotated[str, Argument(metavar="NAME", show_default=False)]


@dataclass(frozen=True)
class Described:
    """An application as it is described on the command line."""

    command: str | None
    template: str | None
    in_container: bool
    parameters: tuple[str, ...]
    version_command: str | None


def list_applications(as_json: options.Json = False, project: options.Project = None) -> int:
    """List the applications of the project, and the templates."""
    os.chdir(projects.require(project))
    return list_apps(as_json=as_json)


def show(name: Name, as_json: options.Json = False, project: options.Project = None) -> int:
    """Show the file of an application and its gaps."""
    os.chdir(projects.require(project))
    return show_app(name, as_json=as_json)


def new(
    name: Name,
    command: Annotated[
        str | None,
        Option(
            "--command",
            metavar="TEXT",
            help="Its command line, e.g. 'tool --in {image} --out {out} --threads {cpus}'.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        Option("--template", metavar="NAME", help="A known tool; see `voxcast app list`."),
    ] = None,
    container: Annotated[
        bool, Option("--container", help="Run it in the container of the template.")
    ] = False,
    parameters: Annotated[
        list[str] | None,
        Option("-p", "--param", metavar="NAME=VALUE", help="A parameter, filled in as {NAME}."),
    ] = None,
    version_command: Annotated[
        str | None,
        Option("--version-command", metavar="TEXT", help="Prints the version of the tool."),
    ] = None,
    image: Annotated[
        Path | None,
        Option("--image", metavar="IMAGE", help="Try it on this, not on the smallest on record."),
    ] = None,
    cpus: Annotated[int, Option("--cpus", metavar="N", help="CPUs of the trial.")] = 1,
    time_limit: Annotated[
        str, Option("--time-limit", metavar="TIME", help="Stop the trial after this time.")
    ] = "10min",
    force: Annotated[bool, Option("--force", help="Replace the file.")] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Describe an application: write conf/app/NAME.yaml, and try it once on a small image.

    The command never runs through a shell. {image}, {out} (a fresh folder), {cpus} and parameters
    are filled in; {bids} is a BIDS dataset with that one image. Nothing is written if the trial
    fails.
    """
    # Otherwise the run of a trial would outlive this process.
    for signal_number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.default_int_handler)
    path = None if image is None else image.expanduser().absolute()
    if path is not None:
        file_size_bytes(path)
    start = Path.cwd()
    os.chdir(projects.require(project))  # all other paths are relative to the project
    limit_s = options.seconds(time_limit, "--time-limit") or 0.0
    described = Described(command, template, container, tuple(parameters or ()), version_command)
    return _new(name, described, path, start, cpus, limit_s, force=force, as_json=as_json)


ACTIONS = {"new": new, "list": list_applications, "show": show}


def _new(
    name: str,
    described: Described,
    image: Path | None,
    start: Path,
    cpus: int,
    limit_s: float,
    *,
    force: bool,
    as_json: bool,
) -> int:
    from voxcast.apps.checks import DOUBTFUL, STOPS, Gap, gaps_of
    from voxcast.apps.new import check_name, write_app
    from voxcast.config.load import app_of
    from voxcast.measure.record import figures

    check_name(name)
    path = CONF_APP / f"{name}.yaml"
    if path.exists() and not force:
        raise ConfigError("exists already", path, "choose another name, or give --force")
    template = _template(described)
    values = _values(described, template, start)
    app = app_of(CONF_APP, name, values)
    configuration = _configuration(app, cpus)
    image = image or _smallest_image()
    trial = None
    # A template may be written before its tool is installed.
    stopped = any(gap.urgency == STOPS for gap in gaps_of(app, configuration))
    if image is not None and not stopped:
        trial = _try(app, image, configuration, limit_s)
        if trial.run.outcome not in ("completed", "timeout"):
            print(trial.log.rstrip(), file=sys.stderr)
            _print_trial(app, image, configuration, trial)
            print("nothing was written; mend the command and run it again", file=sys.stderr)
            return FAILED
        values |= _values_of_trial(app, trial)
        app = app_of(CONF_APP, name, values)
    write_app(path, name, values, _comments(template, trial))
    gaps = gaps_of(app, configuration, **_findings(trial))
    if trial is None and not stopped:
        gaps.insert(0, Gap(DOUBTFUL, "it was not tried: give --image"))
    if as_json:
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
    print(f"{'next':12} voxcast learn IMAGES --app {name}")
    return 0


def _template(described: Described) -> AppTemplate | None:
    from voxcast.apps.new import load_template

    if (described.command is None) == (described.template is None):
        then = "give e.g. --command 'tool --in {image} --out {out}', or --template recon-all"
        raise ConfigError("needs --command or --template, and not both", "app new", then)
    if described.in_container and described.template is None:
        raise ConfigError("needs a --template", "--container")
    return None if described.template is None else load_template(described.template)


def _values(described: Described, template: AppTemplate | None, start: Path) -> dict[str, Any]:
    """Return the values of the file, before the trial."""
    from voxcast.apps.app import parameter_values
    from voxcast.apps.checks import UNKNOWN_VERSION, check_program
    from voxcast.apps.new import argv_of, printed_version

    values = {} if template is None else template.values(in_container=described.in_container)
    if described.command is not None:
        program, *arguments = argv_of(described.command)
        # Runs have folders of their own, so that a relative path would not lead to it.
        values["argv"] = [str(start / program) if "/" in program else program, *arguments]
        check_program(values["argv"][0])
    parameters = {**values.get("parameters", {}), **parameter_values(described.parameters)}
    if parameters:
        values["parameters"] = parameters
    version_command = described.version_command
    if version_command is None and template is not None and shutil.which(values["argv"][0]):
        version_command = template.version_command
    if version_command is not None:
        return {"version": printed_version(argv_of(version_command)), **values}
    program_path = shutil.which(values["argv"][0])
    # Without a command the version is the hash of the program's file.
    if (
        program_path
        and not described.in_container
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
    comments = [] if template is None else template.comments
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


def list_apps(*, as_json: bool) -> int:
    """Print the applications of the project in the current folder, and the templates."""
    from voxcast import config
    from voxcast.apps.new import load_template, template_names

    apps = {name: _summary(name) for name in config.options(CONF_APP)}
    templates = {name: load_template(name).description for name in template_names()}
    if as_json:
        print(json.dumps({"apps": apps, "templates": templates}, indent=2))
        return 0
    for name, text in apps.items():
        print(f"{name:24} {text}")
    print("templates, for `voxcast app new NAME --template TEMPLATE`; not run here:")
    for name, text in templates.items():
        print(f"{name:24} {text}")
    return 0


def _summary(name: str) -> str:
    from voxcast import config

    try:
        app = config.load_app(CONF_APP, name)
    except ConfigError as error:
        if error.problem == "needs a value":  # the file is to be filled in for each call
            needed = str(error.where).rpartition(": ")[2]
            return f"for any program: needs {needed}, see `voxcast measure --help`"
        return str(error)
    return f"{app.version}: {app.module or shlex.join(app.argv)}"


def show_app(name: str, *, as_json: bool) -> int:
    """Print the file of an application, and its gaps.

    Raises
    ------
    ConfigError
        If the application is unknown, or its file is invalid.
    """
    from voxcast import config
    from voxcast.apps.checks import gaps_of

    app = config.load_app(CONF_APP, name)
    if as_json:
        print(json.dumps(asdict(app), indent=2))
    else:
        print((CONF_APP / f"{name}.yaml").read_text(encoding="utf-8"), end="")
        for gap in gaps_of(app):
            print(f"{gap.urgency:12} {gap.text}")
    return 0
