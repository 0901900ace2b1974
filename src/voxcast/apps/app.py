"""How an application is started: its parameters, argument list, environment and version."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from voxcast.apps.containers import (
    BIDS,
    INPUTS,
    OUT,
    bids_folder,
    digest,
    path_inside,
    run_binds,
    wrap,
)
from voxcast.errors import ConfigError, RunError
from voxcast.files import sha256_file, sha256_of
from voxcast.records import App, Configuration, Scale

_KINDS = {str: "a text", int: "a whole number", float: "a number"}


def parameter_values(
    texts: Iterable[str], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return parameters from texts ``NAME=VALUE`` of a command line.

    Parameters
    ----------
    texts : iterable of str
        Values are numbers, ``true`` and ``false``, or texts.
    defaults : mapping, optional
        Parameters of the application. Where the default is a text, the value is one; where it is
        a list or an object, the value is JSON.

    Raises
    ------
    ConfigError
        If a text has no ``=``.

    Examples
    --------
    >>> parameter_values(["iterations=30", "tolerance=1e-3", "mask=true", "kernel=cubic"])
    {'iterations': 30, 'tolerance': 0.001, 'mask': True, 'kernel': 'cubic'}
    >>> parameter_values(["release=7"], {"release": "8.1"})
    {'release': '7'}
    """
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise ConfigError(f"needs NAME=VALUE, not {text!r}", "--param")
        values[name] = _value(value, (defaults or {}).get(name))
    return values


def _value(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text, parse_constant=str)  # NaN is a text
    except ValueError:
        return text
    is_scalar = isinstance(value, bool | int | float)
    return value if is_scalar or isinstance(default, list | dict) else text


def scaled_parameters(app: App, scale: Scale, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run at ``scale``; ``overrides`` take precedence.

    Raises
    ------
    ConfigError
        If the application has no such parameter, a value has the wrong type, or it has no
        scaled-down parameters: a full-scale run would then be mislabelled.
    """
    if scale == "scaled_down" and not app.scaled_down:
        then = f"set scaled_down in conf/app/{app.name}.yaml, or run it at full scale"
        raise ConfigError("cannot be scaled down", app.name, then)
    for name, value in overrides.items():
        where = f"{app.name}.{name}"
        check_type(value, app.parameters[chosen(name, app.parameters, "parameter", where)], where)
        choices = [choice for choice in app.ranges.get(name, ()) if isinstance(choice, str)]
        if choices and value not in choices:
            raise ConfigError(f"is not one of {', '.join(choices)}: {value!r}", where)
    scaled = app.scaled_down if scale == "scaled_down" else {}
    return {**app.parameters, **scaled, **overrides}


def check_type(value: Any, default: Any, where: str) -> None:
    """Check that a value has the type of the default; a whole number may be written as 3.0.

    Raises
    ------
    ConfigError
        If it has another type, or is not finite.
    """
    if default is None:
        return
    kind = type(default)
    fits = isinstance(value, kind)
    if kind in (int, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        fits = fits and (float(value).is_integer() if kind is int else math.isfinite(value))
    if not fits:
        raise ConfigError(f"needs {_KINDS.get(kind, kind.__name__)}, not {value!r}", where)


# Every library that would otherwise start as many threads as there are cores.
THREAD_VARIABLES = (
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
# In a command line, with the names of parameters. The memory is the run's allocation.
PLACEHOLDERS = ("image", "bids", "out", "threads", "device", "memory_bytes", "memory_gb")
PACKAGED = re.compile(r"(voxcast(?:_apps)?):(.+)")  # a file in one of our two packages
# A doubled brace, a placeholder, or a brace that is neither.
_BRACES = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]")


def choose(apps: Mapping[str, App], name: str) -> App:
    """Return the application ``name``.

    Raises
    ------
    ConfigError
        If it is unknown; the message lists the applications.
    """
    return apps[chosen(name, apps, "application")]


def chosen(name: str, names: Iterable[str], noun: str, where: str = "") -> str:
    """Return ``name`` if it is one of ``names``.

    Raises
    ------
    ConfigError
        If it is unknown; the message lists ``names``.
    """
    if name not in names:
        then = f"choose from {', '.join(sorted(names)) or 'none'}"
        raise ConfigError(f"unknown {noun}", where or name, then)
    return name


def command(
    app: App,
    image: Path | None,
    out: Path,
    configuration: Configuration,
    parameters: Mapping[str, Any],
    *,
    memory_bytes: int | None = None,
) -> list[str]:
    """Return the argument list that runs ``app`` on ``image`` and writes into ``out``.

    An application in a container needs staged folders, see `voxcast.apps.containers.staged`.

    Parameters
    ----------
    image : Path or None
        None for an application without input.
    memory_bytes : int, optional
        Memory that the run may use, for ``{memory_bytes}`` and ``{memory_gb}``; by default the
        memory limit of ``configuration``, or without a limit the memory of this machine.

    Raises
    ------
    ConfigError
        If an image or container engine is missing, or an argument has an unknown placeholder.
    """
    if app.input == "volume" and image is None:
        raise ConfigError("needs an image", app.name)
    if app.input == "none":
        image = None
    if app.module is not None:
        return [
            sys.executable, "-P", "-m", app.module,  # -P: not a module of the current folder
            *([] if image is None else ["--image", str(image)]),
            "--out", str(out),
            "--threads", str(configuration.cpus),
            "--device", configuration.device,
            "--parameters", json.dumps(dict(parameters), sort_keys=True),
        ]  # fmt: skip
    memory_bytes = memory_bytes or configuration.mem_limit_bytes or _machine_memory_bytes()
    values = {name: _text(value) for name, value in parameters.items()} | {
        "threads": str(configuration.cpus),
        "device": configuration.device,
        "memory_bytes": str(memory_bytes),
        "memory_gb": str(max(1, memory_bytes // 10**9)),  # tools read zero as no limit
        "image": str(image or ""),
        "bids": str(bids_folder(out)),
        "out": str(out),
    }
    if not app.container:
        return filled(app.argv, values, app.name)
    if configuration.container_engine == "none":
        then = f"set device.{configuration.device}.container_engine, e.g. to apptainer"
        raise ConfigError("needs a container engine, and none is chosen", app.name, then)
    values["image"] = f"{path_inside(app, INPUTS)}/{image.name}" if image else ""
    values |= {"out": path_inside(app, OUT), "bids": path_inside(app, BIDS)}
    return wrap(
        configuration.container_engine,
        container_image(app, configuration),
        filled(app.argv, values, app.name),
        binds=run_binds(app, out),
        env=library_variables(configuration),
        gpus=configuration.gpus,
    )


def filled(argv: Sequence[str], values: Mapping[str, str], where: str) -> list[str]:
    """Return ``argv`` with ``{name}`` replaced by its value and doubled braces by single ones.

    Values are neither expanded again nor split: a name with spaces stays one argument.

    Raises
    ------
    ConfigError
        For a name that is not in ``values``, or a single brace.

    Examples
    --------
    >>> filled(["tool", "-i={image}", "{{literal}}"], {"image": "my T1w.nii"}, "tool")
    ['tool', '-i=my T1w.nii', '{literal}']
    """

    def value(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] in values:
            return values[match[1]]
        if match[1] is None:
            problem, then = f"a single brace in {match.string!r}", "double it for a literal brace"
        else:
            names = ", ".join(sorted(values)).replace("threads", "threads (`app new`: cpus)")
            problem = f"unknown {match[0]}"
            then = f"choose from {names}, or add a parameter (`app new -p {match[1]}=VALUE`)"
        raise ConfigError(problem, f"{where}.argv", then)

    return [_BRACES.sub(value, part) for part in argv]


def _machine_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def library_variables(configuration: Configuration) -> dict[str, str]:
    """Return the variables that limit libraries to the run's threads and GPUs."""
    variables = {name: str(configuration.cpus) for name in THREAD_VARIABLES}
    if configuration.gpus:  # numbered as by NVML, which measures their use
        return {**variables, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # A run on the CPU must not use a GPU that the program finds.
    return {**variables, "CUDA_VISIBLE_DEVICES": ""}


def environment(configuration: Configuration) -> dict[str, str]:
    """Return the variables of a run, in addition to our own."""
    # Python may cache bytecode, even where our shell forbids it: compiling in every run took ANTs
    # four seconds, which a run in normal use does not spend.
    variables = {**library_variables(configuration), "PYTHONDONTWRITEBYTECODE": ""}
    if configuration.container_engine == "charliecloud":  # which refuses to start without
        variables["USER"] = os.environ.get("USER") or str(os.getuid())
    return variables


def container_image(app: App, configuration: Configuration) -> str:
    """Return the image for the device of ``configuration``.

    Raises
    ------
    ConfigError
        If the application has none.
    """
    if configuration.device not in app.container:
        where = f"app.{app.name}.container.{configuration.device}"
        raise ConfigError("no image for this device", where, "set it, or remove the device")
    return app.container[configuration.device]


def container_facts(app: App, configuration: Configuration) -> dict[str, str] | None:
    """Return engine, image and digest for a record, or None without a container."""
    if not app.container or configuration.container_engine == "none":
        return None
    image, engine = container_image(app, configuration), configuration.container_engine
    return {"engine": engine, "image": image, "digest": digest(engine, image)}


def app_version(app: App, configuration: Configuration | None = None) -> str:
    """Return the version of ``app`` and of its dependencies, e.g. ``1+antspyx0.6.3``.

    The application's version is followed by the versions of its packages, a hash of its files,
    and, for a configuration with a container engine, the digest of its image.

    Raises
    ------
    RunError
        If a package is not installed, or a file or the image is missing.
    """
    parts = [app.version]
    for package in app.packages:
        try:
            parts.append(package + importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            problem = f"needs the package {package}"
            raise RunError(problem, app.name, f"pip install {package}") from None
    if app.files:
        try:
            paths = [package_path(name) for name in app.files]
            parts.append("files" + sha256_of([sha256_file(path) for path in paths])[:12])
        except OSError as error:
            where = f"app.{app.name}.files"
            raise RunError(f"cannot read {error.filename} ({error.strerror})", where) from None
    if configuration is not None and (facts := container_facts(app, configuration)):
        parts.append("image" + facts["digest"].removeprefix("sha256:")[:12])
    return "+".join(parts)


def package_path(name: str) -> Path:
    """Return the path of a file of an application; ``PACKAGE:`` begins a file that comes with us.

    Examples
    --------
    >>> package_path("voxcast:apps/app.py").is_file()
    True
    """
    packaged = PACKAGED.fullmatch(name)
    return Path(__file__).parents[2].joinpath(*packaged.groups()) if packaged else Path(name)


def _text(value: Any) -> str:
    """Return a parameter as an argument: text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
