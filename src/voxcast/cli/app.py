"""``voxcast init``: a project. ``voxcast app``: applications, described and tried."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast import config
from voxcast import project as projects
from voxcast.apps.checks import DOUBTFUL, STOPS, Gap, check_startable, gaps_of
from voxcast.apps.new import check_name, described, load_template, template_names, write_app
from voxcast.cli import options
from voxcast.cli.measure import first_configuration, run_lines
from voxcast.config.load import app_of
from voxcast.errors import ConfigError
from voxcast.images.header import file_size_bytes
from voxcast.measure.record import figures, try_app
from voxcast.project import CONF_APP, CONF_DEVICE
from voxcast.quantities import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


CATALOGUE = Path("data/catalogue/catalogue.parquet")
FAILED = 1
TRIAL_S = 600.0  # of a trial at most

Name = Annotated[str, Argument(metavar="NAME", show_default=False)]


def init(
    folder: Annotated[
        Path,
        Argument(
            metavar="[DIR]",
            show_default=False,
            help="Folder of the project, made if missing; by default the current one.",
        ),
    ] = Path(),
    as_json: options.Json = False,
) -> int:
    """Write a project for your own images and applications, and name the next commands."""
    from voxcast.config.project_files import create_project
    from voxcast.tracking.address import DATABASE, address_of

    address_of(folder.resolve() / DATABASE)  # a folder that MLflow cannot address
    names = create_project(folder)
    lines = [
        f"project in {folder.resolve()}: {len(names)} files",
        *([f"  cd {shlex.quote(str(folder))}"] if folder != Path() else []),
        "  voxcast app new NAME --command 'tool -i {image} -o {out}/out.nii.gz -n {cpus}'",
        "  voxcast learn IMAGES --app NAME",
    ]
    content = {"project": str(folder.resolve()), "files": names}
    return options.show(content, lines, as_json=as_json)


def list_apps(as_json: options.Json = False, project: options.Project = None) -> int:
    """List the applications of the project, and the templates."""
    os.chdir(projects.require(project))

    apps = {name: _summary(name) for name in config.options(CONF_APP)}
    templates = {name: load_template(name).description for name in template_names()}
    lines = [
        *(f"{name:24} {text}" for name, text in apps.items()),
        "templates, for `voxcast app new NAME --template TEMPLATE`; not run here:",
        *(f"{name:24} {text}" for name, text in templates.items()),
    ]
    return options.show({"apps": apps, "templates": templates}, lines, as_json=as_json)


def show(name: Name, as_json: options.Json = False, project: options.Project = None) -> int:
    """Show the file of an application and its gaps."""
    os.chdir(projects.require(project))

    app = config.load_app(CONF_APP, name)
    text = (CONF_APP / f"{name}.yaml").read_text(encoding="utf-8").rstrip()
    return options.show(asdict(app), [text, *_gap_lines(gaps_of(app))], as_json=as_json)


def new(
    name: Name,
    command: Annotated[
        str | None,
        Option(
            "--command",
            metavar="TEXT",
            help="Its command line, e.g. 'tool -i {image} -o {out}/out.nii.gz -n {cpus}'.",
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
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Describe an application: write conf/app/NAME.yaml, and try it once on a small image.

    The command never runs through a shell. {image}, {out} (a fresh folder), {cpus} and parameters
    are filled in; {bids} is a BIDS dataset with that one image. Nothing is written if the trial
    fails.
    """
    options.interruptible()
    path = None if image is None else image.expanduser().absolute()
    if path is not None:
        file_size_bytes(path)
    start = Path.cwd()
    os.chdir(projects.require(project))  # all other paths are relative to the project

    check_name(name)
    written = CONF_APP / f"{name}.yaml"
    if written.exists():
        raise ConfigError("exists already", written, "edit or remove it, or choose another name")
    from_template = None if template is None else load_template(template)
    values = described(
        command, from_template, parameters or (), version_command, start, in_container=container
    )
    comments, notes = list[str](), list[str]()
    if from_template is not None:
        comments, notes = from_template.comments, from_template.notes
    app = app_of(CONF_APP, name, values)
    configuration = first_configuration(app, CONF_DEVICE)
    # A template may be written before its tool is installed.
    gaps = gaps_of(app, configuration)
    path, result, lines = path or _smallest_image(), None, []
    is_startable = all(gap.urgency != STOPS for gap in gaps)
    if is_startable and path is None:
        gaps.insert(0, Gap(DOUBTFUL, "it was not tried: give --image"))
    if is_startable and path is not None:
        check_startable(app, configuration)
        print(f"trying {name} on {path.name}, {configuration.label}, for at most "
              f"{format_seconds(TRIAL_S)}", file=sys.stderr)  # fmt: skip
        trial = try_app(app, path, configuration, TRIAL_S)
        result, outcome = figures(trial.run, trial.phases), trial.run.outcome
        lines = run_lines(f"{name} on {path.name}", configuration.label, result)
        if outcome not in ("completed", "timeout"):
            print("\n".join([trial.log.rstrip(), *lines]), file=sys.stderr)
            print("nothing was written; mend the command and run it again", file=sys.stderr)
            return FAILED
        if trial.proposal:
            values |= {"phases": list(trial.proposal), "phase_patterns": trial.proposal}
            comments = [*comments, "The phases are proposed from the log of a trial."]
            lines.append(f"{'phases':12} {len(trial.proposal)}, proposed from its log")
        if outcome == "completed":
            values |= trial.expected_s
            comments = [*comments, "The expected times are those of a trial on one image."]
        app = app_of(CONF_APP, name, values)
        gaps = gaps_of(
            app, configuration, timed_out=outcome == "timeout", wrote_files=bool(trial.files),
            has_phases=bool(trial.phases),
        )  # fmt: skip
    write_app(written, name, values, comments)
    content = {
        "file": str(written), "app": asdict(app), "trial": result,
        "missing": [asdict(gap) for gap in gaps],
    }  # fmt: skip
    lines += [f"{'written':12} {written}", *(f"{'note':12} {note}" for note in notes)]
    lines += [*_gap_lines(gaps), f"{'next':12} voxcast learn IMAGES --app {name}"]
    return options.show(content, lines, as_json=as_json)


ACTIONS = {"new": new, "list": list_apps, "show": show}


def _smallest_image() -> Path | None:
    if not CATALOGUE.is_file():
        return None
    import pandas as pd

    catalogue = pd.read_parquet(CATALOGUE)
    usable = catalogue[catalogue["problem"].isna()]
    voxels = usable[["shape_i", "shape_j", "shape_k"]].astype(float).prod(axis=1)
    paths = map(Path, usable.loc[voxels.sort_values().index, "path"])
    return next((path for path in paths if path.is_file()), None)


def _summary(name: str) -> str:
    try:
        app = config.load_app(CONF_APP, name)
    except ConfigError as error:
        if error.problem == "needs a value":  # the file is to be filled in for each call
            needed = str(error.where).rpartition(": ")[2]
            return f"for any program: needs {needed}, see `voxcast measure --help`"
        return str(error)
    return f"{app.version}: {app.module or shlex.join(app.argv)}"


def _gap_lines(gaps: Iterable[Gap]) -> Iterator[str]:
    for gap in gaps:
        yield f"{gap.urgency:12} {gap.text}"
