"""Options that the actions of ``voxcast models`` share: a parser, and MLflow kept off stdout."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


def action_parser(
    action: str, description: str, json_help: str = "the receipt on stdout"
) -> argparse.ArgumentParser:
    """Return the parser of ``voxcast models ACTION`` with ``--json`` and ``--project``."""
    parser = VerbParser(prog=f"voxcast models {action}", description=description)
    parser.add_argument("--json", action="store_true", help=json_help)
    add_project_argument(parser)
    return parser


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Keep what MLflow prints off stdout."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
