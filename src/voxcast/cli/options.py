"""Options that several verbs share, and the texts of their values, read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from voxcast.errors import ConfigError, one_line
from voxcast.quantities import parse_seconds

Json = Annotated[bool, Option("--json", help="Print one JSON document.")]
Project = Annotated[Path | None, Option("--project", metavar="DIR", help="The project.")]

Images = Annotated[list[Path] | None, Argument(metavar="IMAGE...", show_default=False)]
Histories = Annotated[
    list[Path],
    Argument(
        metavar="HISTORY...",
        help="a folder of data/history, one of its parts, or a folder of runs such as "
        "data/runs/cpu",
    ),
]
App = Annotated[str | None, Option("--app", metavar="NAME", help="An application of conf/app.")]
Cpus = Annotated[
    str | None,
    Option("--cpus", metavar="N,N", help="Numbers of CPUs; by default those that were measured."),
]
Gpus = Annotated[
    str | None, Option("--gpus", metavar="N,N", help="Numbers of GPUs; 0 for none at all.")
]
Parameters = Annotated[
    list[str] | None,
    Option("-p", "--param", metavar="NAME=VALUE", help="A parameter of the application."),
]
Model = Annotated[
    str | None,
    Option(
        "--model", metavar="MODEL",
        help="A version, a model folder, or the URL of `voxcast serve`; by default the champion.",
    ),
]  # fmt: skip
HeaderOnly = Annotated[bool, Option("--header-only", help="Read headers, but no voxels.")]
Machine = Annotated[
    str | None,
    Option(
        "--machine", metavar="NAME",
        help="Predict for this machine: its id, a host class or a node type; by default this one.",
    ),
]  # fmt: skip
Where = Annotated[
    list[str] | None,
    Option(
        "--where", metavar="NAME=VALUE",
        help="Only runs with this value of a column, label:NAME or parameter:NAME.",
    ),
]  # fmt: skip
Set = Annotated[
    list[str] | None,
    Option("-S", "--set", metavar="KEY=VALUE", help="Change a key of the configuration."),
]
TimeBudget = Annotated[
    str | None, Option("--time-budget", metavar="2h", help="Stop starting runs after this time.")
]
Participants = Annotated[
    list[str] | None,
    Option(
        "--participant-label", metavar="LABEL,LABEL",
        help="Participants of the dataset to use, with or without sub-.",
    ),
]  # fmt: skip
Cluster = Annotated[
    str | None,
    Option(
        "--cluster", metavar="NAME[:PARTITION]",
        help="A cluster of conf/cluster, `local` for this machine.",
    ),
]  # fmt: skip
Policy = Annotated[
    str | None, Option("--policy", metavar="NAME", help="cautious, balanced or thrifty.")
]
Deadline = Annotated[
    str | None,
    Option(
        "--deadline", metavar="2h|WHEN",
        help="Finish within this time, or by a date such as 2030-01-31T18:00.",
    ),
]  # fmt: skip
Budget = Annotated[
    str | None, Option("--budget", metavar="USD", help="Largest cost of one image.")
]
Picture = Annotated[
    Path | None, Option("--picture", metavar="FILE.svg", help="Write a picture, too.")
]

_COUNT = re.compile(r"\d{1,9}", re.ASCII)


def counts(text: str | None, option: str, *, least: int = 1) -> tuple[int, ...] | None:
    """Read whole numbers such as ``1,2``; None stays None.

    Raises
    ------
    ConfigError
        If one is no whole number of at least ``least``.

    Examples
    --------
    >>> counts("1,2", "--cpus")
    (1, 2)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(_COUNT.fullmatch(part) and int(part) >= least for part in parts):
        return tuple(int(part) for part in parts)
    raise ConfigError(f"must be whole numbers of at least {least}, not {text!r}", option)


def seconds(text: str | None, option: str) -> float | None:
    """Read a duration such as ``2h``, ``90min`` or ``3600s``; None stays None.

    Raises
    ------
    ConfigError
        If it is no duration.
    """
    if text is None:
        return None
    try:
        return parse_seconds(text)
    except ConfigError as error:
        raise ConfigError(one_line(error), option) from None


def numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    """Read ``count`` finite numbers such as ``1,0,0``.

    Raises
    ------
    ConfigError
        If there are more or fewer, or one is no finite number.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ConfigError(f"must be {count} numbers with commas between, not {text!r}", option)
    return values


def durations(text: str, option: str) -> tuple[float, float]:
    """Read two durations such as ``30s,10s``, or two numbers.

    Raises
    ------
    ConfigError
        If they are others, or negative.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = tuple(seconds(part, option) or 0.0 for part in text.split(","))
    if len(values) != 2 or not all(0 <= value < math.inf for value in values):
        raise ConfigError(f"must be two durations with a comma between, not {text!r}", option)
    return values[0], values[1]


def labels_of(texts: list[str] | None) -> list[str]:
    """Return participant labels, which may be separated by commas."""
    return [label for text in texts or () for label in text.split(",") if label]


def picture_path(path: Path | None) -> Path | None:
    """Return the path of a picture, whose name must end in ``.svg``.

    Raises
    ------
    ConfigError
        If it ends otherwise.
    """
    if path is not None and path.suffix.lower() != ".svg":
        raise ConfigError("the picture is an SVG", path, "let its name end in .svg")
    return path
