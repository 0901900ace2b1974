"""Options of the verbs that group the ticks of a trace into phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def add_grouping_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--tolerance`` and ``--min-share``."""
    parser.add_argument(
        "--tolerance", type=float, metavar="DECADES",
        help="largest difference from the founder of a phase, in orders of magnitude (0.25)",
    )  # fmt: skip
    parser.add_argument(
        "--min-share", type=float, metavar="SHARE",
        help="drop phases with a smaller share of the time (0.01)",
    )  # fmt: skip


def grouping_options(args: argparse.Namespace) -> tuple[float, float]:
    """Return tolerance and least share.

    Raises
    ------
    ConfigError
        If one is out of range.
    """
    from voxcast.phases.signature import MIN_SHARE, TOLERANCE_DECADES

    tolerance = TOLERANCE_DECADES if args.tolerance is None else args.tolerance
    min_share = MIN_SHARE if args.min_share is None else args.min_share
    if not 0 <= tolerance < float("inf"):
        raise ConfigError(f"must be 0 or more, not {tolerance:g}", "--tolerance")
    if not 0 <= min_share <= 1:
        raise ConfigError(f"must be 0 to 1, not {min_share:g}", "--min-share")
    return tolerance, min_share
