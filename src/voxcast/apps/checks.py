"""Checks before anything is run: an application's description and its gaps, program, container."""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from voxcast.apps.app import PLACEHOLDERS, container_image, filled
from voxcast.apps.containers import OUTSIDE, check_image
from voxcast.apps.staging import BIDS, INPUTS, OUT, SCRATCH, reads_bids
from voxcast.errors import ConfigError, RunError
from voxcast.records import App, Configuration

_NAME = re.compile(r"[A-Za-z_]\w*")


def check_app(app: App) -> None:
    """Check the rules of ``conf/app/NAME.yaml`` that types cannot express.

    Raises
    ------
    ConfigError
        For the first rule that is violated, with its key.
    """
    _check_start(app)
    _check_parameters(app)
    _check_phases(app)
    _check_container(app)
    _check_split(app)


def _check_start(app: App) -> None:
    if (app.module is None) == (not app.argv):
        then = "use a module for Python, argv for any other program"
        raise ConfigError("needs a module or argv, and not both", f"app.{app.name}", then)
    if not app.devices:
        raise ConfigError("needs at least one device", f"app.{app.name}.devices")
    if app.verify_gpu and "gpu" not in app.devices:
        raise ConfigError("needs gpu among the devices", f"app.{app.name}.verify_gpu")
    if app.module is not None and not _exists(app.module):
        raise ConfigError(f"no such module: {app.module}", f"app.{app.name}.module")
    values = dict.fromkeys((*PLACEHOLDERS, *app.parameters), "") | {"image": "\0"}
    arguments = filled(app.argv, values, f"app.{app.name}")
    names_image = (
        any("\0" in part for part in arguments) or INPUTS in app.binds.values() or reads_bids(app)
    )
    if app.argv and (app.input == "volume") != names_image:
        problem = (
            "has input: none but names an image"
            if names_image
            else "does not name the image: use {image} in argv, or {inputs} in binds"
        )
        raise ConfigError(problem, f"app.{app.name}")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or the name is invalid
        return False


def _check_parameters(app: App) -> None:
    for name in app.parameters:
        if name in PLACEHOLDERS or not _NAME.fullmatch(name):
            then = f"names are letters, digits and _, and not {', '.join(PLACEHOLDERS)}"
            raise ConfigError("cannot be a parameter", f"app.{app.name}.parameters.{name}", then)
    for group, names in (("ranges", app.ranges), ("scaled_down", app.scaled_down)):
        for name in sorted(set(names) - set(app.parameters)):
            parameter_names = ", ".join(sorted(app.parameters)) or "none"
            where = f"app.{app.name}.{group}.{name}"
            raise ConfigError("unknown parameter", where, f"choose from {parameter_names}")
    for name, values in app.ranges.items():
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        if len(values) < 2 or (len(values) == 2 and numbers and not values[0] < values[1]):
            where = f"app.{app.name}.ranges.{name}"
            raise ConfigError("needs a low and a higher number, or a list of values", where)


def _check_phases(app: App) -> None:
    for name, pattern in app.phase_patterns.items():
        where = f"app.{app.name}.phase_patterns.{name}"
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise ConfigError(f"not a regular expression ({error})", where) from None
        if ("seconds" in groups) == ("start" in groups):
            raise ConfigError("needs a group (?P<seconds>…) or (?P<start>…), and not both", where)
        if name not in app.phases:
            raise ConfigError("is not among the phases", where, "add it to phases, in its order")


def _check_container(app: App) -> None:
    where = f"app.{app.name}"
    if not app.container:
        if app.binds:
            raise ConfigError("need a container, and none is set", f"{where}.binds")
        return
    if app.module is not None:
        then = "use argv: voxcast is not installed in the image"
        raise ConfigError("a module cannot run in a container", f"{where}.container", then)
    if set(app.container) != set(app.devices):
        devices = ", ".join(app.devices)
        raise ConfigError(f"needs an image for each of {devices}", f"{where}.container")
    hosts = list(app.binds.values())
    for inside, host in app.binds.items():
        if not inside.startswith("/") or ".." in inside.split("/"):
            raise ConfigError("needs an absolute path in the container", f"{where}.binds.{inside}")
        named = (INPUTS, BIDS, OUT, SCRATCH)
        if host not in named and not host.startswith("/"):
            then = f"choose from {', '.join(named)}, or an absolute path (read-only)"
            raise ConfigError(f"unknown {host}", f"{where}.binds.{inside}", then)
    images = BIDS if BIDS in hosts else INPUTS
    needed = (images, OUT) if app.input == "volume" else (OUT,)
    for host in needed:
        if hosts.count(host) != 1:
            raise ConfigError(f"needs one path for {host}", f"{where}.binds")
    if hosts.count(SCRATCH) > 1:
        raise ConfigError(f"needs at most one path for {SCRATCH}", f"{where}.binds")


def _check_split(app: App) -> None:
    where = f"app.{app.name}.split"
    if app.split and set(app.split) != {"count", "range"}:
        raise ConfigError("needs count and range, names of two parameters", where)
    for key, name in app.split.items():
        if name not in app.parameters:
            raise ConfigError(f"unknown parameter {name}", f"{where}.{key}")


def check_startable(app: App, configuration: Configuration) -> None:
    """Check that ``app`` can be started and measured here.

    Raises
    ------
    ConfigError
        If it needs a container engine and none is chosen, or one that cannot be measured.
    RunError
        If its program, or its container, is missing.
    """
    if app.module is None and not app.container:
        check_program(app.argv[0])
    for program in app.programs:
        check_program(program)
    if app.container and configuration.container_engine == "none":
        then = f"set container_engine in conf/device/{configuration.device}.yaml, e.g. apptainer"
        raise ConfigError("needs a container engine, and none is chosen", app.name, then)
    check_container(app, configuration)


def check_program(program: str) -> None:
    """Check that a program can be started; one that a parameter decides is not looked at.

    Raises
    ------
    RunError
        If the program is missing or not executable.
    """
    if "{" in program or shutil.which(program) is not None:
        return
    path = Path(program)
    if "/" not in program:
        raise RunError("is not on PATH", program, "install it, or name it by its path")
    if path.is_dir():
        raise RunError("is a folder, not a program", program)
    if path.exists():
        raise RunError("is not executable", program, f"run `chmod +x {program}`")
    raise RunError("no such program", program)


def check_container(app: App, configuration: Configuration) -> None:
    """Check that ``app`` can be run in its container and measured, before any run starts.

    Raises
    ------
    ConfigError
        If it has no image, or the engine's containers cannot be measured.
    RunError
        If the engine, the image, or a path that Charliecloud needs is missing.
    """
    if not app.container or configuration.container_engine == "none":
        return
    engine = configuration.container_engine
    if engine in OUTSIDE:
        raise ConfigError(
            f"{engine} runs containers under its daemon: they cannot be measured",
            f"app.{app.name}",
            "choose another container_engine in conf/device",
        )
    check_image(engine, container_image(app, configuration), list(app.binds))


# Gaps by urgency: nothing can be measured; measurements may be wrong; less is known than could be.
STOPS, DOUBTFUL, COSTS = "stops you", "check", "costs you"
UNKNOWN_VERSION = "1"  # of an application whose tool has no version command


@dataclass(frozen=True)
class Gap:
    """Something that is missing; `urgency` is one of `STOPS`, `DOUBTFUL` and `COSTS`."""

    urgency: str
    text: str


def gaps_of(
    app: App,
    configuration: Configuration | None = None,
    *,
    timed_out: bool = False,
    wrote_files: bool = True,
    has_phases: bool = True,
) -> list[Gap]:
    """Return the gaps in the description of ``app``, the most urgent first.

    Parameters
    ----------
    configuration : Configuration, optional
        Where it is to run.
    timed_out, wrote_files, has_phases : bool
        How a trial of it ended, if there was one.
    """
    if app.module is not None:
        return []
    gaps: dict[str, list[str]] = {STOPS: [], DOUBTFUL: [], COSTS: []}
    text = " ".join(app.argv)
    if not app.container:
        try:
            check_program(app.argv[0])
        except RunError as error:
            gaps[STOPS].append(str(error))
    elif configuration is not None and configuration.container_engine == "none":
        where = f"container_engine in conf/device/{configuration.device}.yaml"
        gaps[STOPS].append(f"{where}: none is chosen")
    if timed_out:
        gaps[DOUBTFUL].append(
            "the trial was stopped, so its time is not known: give a longer --time-limit"
        )
    elif not wrote_files and "{out}" in text:
        gaps[DOUBTFUL].append(
            "it ended with exit status 0 and wrote no file below {out}: if it failed, "
            "failures would be learned as good runs; a failure needs another exit status"
        )
    if not has_phases:
        gaps[COSTS].append(
            "no line of its output shows phases (START name, name took 2.5 s, messages behind "
            "a time), so a run is one phase"
        )
    if "{out}" not in text:
        gaps[DOUBTFUL].append(
            "{out} is not in the command: nobody can see whether a run wrote its results"
        )
    if "{threads}" not in text:
        gaps[COSTS].append(
            "{cpus} is not in the command: it is pinned to the CPUs of a run, not told of them"
        )
    if app.version == UNKNOWN_VERSION and not app.container:
        of_file = ", so the hash of its file stands for it" if app.files else ""
        gaps[COSTS].append(
            f"the version of the tool is not known{of_file}: give --version-command"
        )
    return [Gap(urgency, gap) for urgency, texts in gaps.items() for gap in texts]
