"""Arguments of the verbs that read a communication trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from voxcast.phases.logical import LogicalTrace

LEVEL = 0.9


def add_level_argument(parser: argparse.ArgumentParser) -> None:
    """Add the level of an interval."""
    parser.add_argument(
        "--level", type=float, default=LEVEL,
        help=f"probability that the interval holds the time ({LEVEL:g})",
    )  # fmt: skip


def fraction(text: str) -> float:
    """Return a number written as such or as a fraction.

    Examples
    --------
    >>> fraction("0.2"), fraction("40/200")
    (0.2, 0.2)
    """
    numerator, slash, denominator = text.partition("/")
    if not slash:
        return float(text)
    if float(denominator) == 0:
        raise ValueError(text)
    return float(numerator) / float(denominator)


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
