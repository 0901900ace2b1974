"""Checks before anything is run: an application's description and its gaps, program, container."""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxcast.apps.app import PLACEHOLDERS, chosen, container_image, filled
from voxcast.apps.containers import BIDS, INPUTS, OUT, SCRATCH, check_image, reads_bids
from voxcast.errors import ConfigError, RunError
from voxcast.records import App, Configuration

# A rule of ``conf/app/NAME.yaml``: whether it is broken, the key, the problem, the remedy.
Rule = tuple[bool, str, str, str | None]


def check_app(app: App) -> None:
    """Check the rules of ``conf/app/NAME.yaml`` that types cannot express.

    Raises
    ------
    ConfigError
        For the first rule that is violated, with its key.
    """
    for group in ("ranges", "scaled_down"):
        for name in getattr(app, group):
            chosen(name, app.parameters, "parameter", f"app.{app.name}.{group}.{name}")
    rules = (*_start_rules(app), *_value_rules(app), *_container_rules(app))
    for is_broken, key, problem, then in rules:
        if is_broken:
            raise ConfigError(problem, f"app.{app.name}{key}", then)


def _start_rules(app: App) -> list[Rule]:
    values = dict.fromkeys((*PLACEHOLDERS, *app.parameters), "") | {"image": "\0"}
    arguments = filled(app.argv, values, f"app.{app.name}")
    names_image = (
        any("\0" in part for part in arguments) or INPUTS in app.binds.values() or reads_bids(app)
    )
    return [
        ((app.module is None) == (not app.argv), "", "needs a module or argv, and not both",
         "use a module for Python, argv for any other program"),
        (not app.devices, ".devices", "needs at least one device", None),
        (app.verify_gpu and "gpu" not in app.devices, ".verify_gpu",
         "needs gpu among the devices", None),
        (app.module is not None and not _exists(app.module), ".module",
         f"no such module: {app.module}", None),
        (bool(app.argv) and app.input == "volume" and not names_image, "",
         "does not name the image: use {image} in argv, or {inputs} in binds", None),
        (bool(app.argv) and app.input == "none" and names_image, "",
         "has input: none but names an image", None),
    ]  # fmt: skip


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or the name is invalid
        return False


def _value_rules(app: App) -> list[Rule]:
    names = f"names are letters, digits and _, and not {', '.join(PLACEHOLDERS)}"
    problems = {name: _pattern_problem(pattern) for name, pattern in app.phase_patterns.items()}
    return [
        *((name in PLACEHOLDERS or not name.isidentifier(), f".parameters.{name}",
           "cannot be a parameter", names) for name in app.parameters),
        *((not _is_range(values), f".ranges.{name}",
           "needs a low and a higher number, or a list of values", None)
          for name, values in app.ranges.items()),
        *((bool(problem), f".phase_patterns.{name}", problem, None)
          for name, problem in problems.items()),
        *((name not in app.phases, f".phase_patterns.{name}", "is not among the phases",
           "add it to phases, in its order") for name in problems),
        (bool(app.split) and set(app.split) != {"count", "range"}, ".split",
         "needs count and range, names of two parameters", None),
        *((name not in app.parameters, f".split.{key}", f"unknown parameter {name}", None)
          for key, name in app.split.items()),
    ]  # fmt: skip


def _is_range(values: tuple[Any, ...]) -> bool:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(values) > 2 or (len(values) == 2 and (len(numbers) < 2 or values[0] < values[1]))


def _pattern_problem(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        return f"not a regular expression ({error})"
    one_kind = ("seconds" in groups) != ("start" in groups)
    return "" if one_kind else "needs a group (?P<seconds>…) or (?P<start>…), and not both"


def _container_rules(app: App) -> list[Rule]:
    if not app.container:
        return [(bool(app.binds), ".binds", "need a container, and none is set", None)]
    hosts, named = list(app.binds.values()), (INPUTS, BIDS, OUT, SCRATCH)
    sources, images = ", ".join(named), BIDS if BIDS in hosts else INPUTS
    needed = (images, OUT) if app.input == "volume" else (OUT,)
    return [
        (app.module is not None, ".container", "a module cannot run in a container",
         "use argv: voxcast is not installed in the image"),
        (set(app.container) != set(app.devices), ".container",
         f"needs an image for each of {', '.join(app.devices)}", None),
        *((not inside.startswith("/") or ".." in inside.split("/"), f".binds.{inside}",
           "needs an absolute path in the container", None) for inside in app.binds),
        *((host not in named and not host.startswith("/"), f".binds.{inside}", f"unknown {host}",
           f"choose from {sources}, or an absolute path (read-only)")
          for inside, host in app.binds.items()),
        *((hosts.count(host) != 1, ".binds", f"needs one path for {host}", None)
          for host in needed),
        (hosts.count(SCRATCH) > 1, ".binds", f"needs at most one path for {SCRATCH}", None),
    ]  # fmt: skip


def check_startable(app: App, configuration: Configuration) -> None:
    """Check that ``app`` can be started and measured here.

    Raises
    ------
    ConfigError
        If it needs a container engine and none is chosen, or has no image for the device.
    RunError
        If its program, its container, or a path that Charliecloud needs is missing.
    """
    own_program = app.argv[:1] if not app.container else ()
    for program in (*own_program, *app.programs):
        check_program(program)
    engine = configuration.container_engine
    if app.container and engine == "none":
        then = f"set container_engine in conf/device/{configuration.device}.yaml, e.g. apptainer"
        raise ConfigError("needs a container engine, and none is chosen", app.name, then)
    if app.container:
        check_image(engine, container_image(app, configuration), list(app.binds))


def check_program(program: str) -> None:
    """Check that a program can be started; one that a parameter decides is not looked at.

    Raises
    ------
    RunError
        If the program is missing or not executable.
    """
    if "{" in program or shutil.which(program) is not None:
        return
    if "/" not in program:
        raise RunError("is not on PATH", program, "install it, or name it by its path")
    if Path(program).is_file():
        raise RunError("is not executable", program, f"run `chmod +x {program}`")
    raise RunError("no such program", program)


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
    text, contained = " ".join(app.argv), bool(app.container)
    of_file = ", so the hash of its file stands for it" if app.files else ""
    gaps = [
        (timed_out, DOUBTFUL,
         "the trial was stopped, so its time is not known: give a longer --time-limit"),
        (not timed_out and not wrote_files and "{out}" in text, DOUBTFUL,
         "it ended with exit status 0 and wrote no file below {out}, a folder (a file is "
         "{out}/out.nii.gz): if it failed, failures would be learned as good runs; a failure "
         "needs another exit status"),
        ("{out}" not in text, DOUBTFUL,
         "{out} is not in the command: there is no way to tell whether a run wrote its results"),
        (not has_phases, COSTS,
         "no line of its output shows phases (START and END name, name took 2.5 s), "
         "so a run is one phase"),
        ("{threads}" not in text, COSTS,
         "{cpus} is not in the command: the tool is pinned to the CPUs of a run, but does not "
         "know their number"),
        (app.version == UNKNOWN_VERSION and not contained, COSTS,
         f"the version of the tool is not known{of_file}: give --version-command"),
    ]  # fmt: skip
    listed = [Gap(urgency, gap) for exists, urgency, gap in gaps if exists]
    if contained and configuration is not None and configuration.container_engine == "none":
        where = f"container_engine in conf/device/{configuration.device}.yaml"
        return [Gap(STOPS, f"{where}: none is chosen"), *listed]
    if not contained:
        try:
            check_program(app.argv[0])
        except RunError as error:
            return [Gap(STOPS, str(error)), *listed]
    return listed
