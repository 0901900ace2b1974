"""Options of the actions that read a communication trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from voxcast.errors import ConfigError
from voxcast.phases.signature import MIN_SHARE, TOLERANCE_DECADES

if TYPE_CHECKING:
    from voxcast.phases.logical import LogicalTrace

Trace = Annotated[Path, Argument(metavar="TRACE", show_default=False)]
Level = Annotated[
    float, Option("--level", metavar="P", help="Probability that the interval holds the time.")
]
Tolerance = Annotated[
    float | None,
    Option(
        "--tolerance", metavar="DECADES",
        help=f"Largest difference from the founder of a phase ({TOLERANCE_DECADES:g}).",
    ),
]  # fmt: skip
MinShare = Annotated[
    float | None,
    Option(
        "--min-share", metavar="SHARE",
        help=f"Drop phases with a smaller share of the time ({MIN_SHARE:g}).",
    ),
]  # fmt: skip


def grouping(
    tolerance: float | None, min_share: float | None, usual: float = TOLERANCE_DECADES
) -> tuple[float, float]:
    """Return tolerance and least share, by default the usual.

    Raises
    ------
    ConfigError
        If one is out of range.
    """
    tolerance = usual if tolerance is None else tolerance
    min_share = MIN_SHARE if min_share is None else min_share
    if not 0 <= tolerance < float("inf"):
        raise ConfigError(f"must be 0 or more, not {tolerance:g}", "--tolerance")
    if not 0 <= min_share <= 1:
        raise ConfigError(f"must be 0 to 1, not {min_share:g}", "--min-share")
    return tolerance, min_share


def fraction(text: str, option: str) -> float:
    """Return a number written as such or as a fraction.

    Raises
    ------
    ConfigError
        If it is neither.

    Examples
    --------
    >>> fraction("0.2", "--check"), fraction("40/200", "--check")
    (0.2, 0.2)
    """
    numerator, slash, denominator = text.partition("/")
    try:
        return float(numerator) / (float(denominator) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"must be a share such as 0.2 or 40/200, not {text!r}", option) from None


def checked_share(value: float, option: str) -> float:
    """Return a share above 0 and below 1.

    Raises
    ------
    ConfigError
        If it is not.
    """
    if not 0 < value < 1:
        raise ConfigError(f"must be between 0 and 1, not {value:g}", option)
    return value


def read_logical_trace(path: Path) -> LogicalTrace:
    """Read a trace and order it; its gaps are named on stderr.

    Raises
    ------
    RunError
        If it cannot be read, or has no events.
    """
    from voxcast.errors import RunError
    from voxcast.phases.events import read_trace
    from voxcast.phases.logical import logical_trace

    trace = logical_trace(read_trace(path))
    if not len(trace):
        raise RunError("has no events", path, "it was not traced; record it again")
    for lack in trace.missing:
        print(f"voxcast: {path}: missing: {lack}", file=sys.stderr)
    return trace
