"""Options shared by the verbs that take a history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HISTORY_HELP = (
    "a folder of data/history, recorded or imported, one of its parts, "
    "or a folder of runs such as data/runs/cpu"
)


def add_history_argument(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument for `voxcast.runs.store.open_history`."""
    parser.add_argument("history", type=Path, nargs="+", metavar="HISTORY", help=HISTORY_HELP)


def add_where_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--where``, the conditions of `voxcast.runs.table.runs_where`."""
    parser.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUE",
        help="only runs with this value of a column, label:NAME or parameter:NAME; repeatable",
    )  # fmt: skip
