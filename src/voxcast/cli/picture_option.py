"""The option ``--picture`` of verbs whose result can be drawn."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse

logger = logging.getLogger(__name__)


def add_picture_argument(parser: argparse.ArgumentParser, content: str) -> None:
    """Add ``--picture``; check it with `check_picture` before the work begins."""
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.svg", help=f"write {content} as a picture"
    )


def check_picture(path: Path | None) -> None:
    """Check the name of a picture.

    Raises
    ------
    ConfigError
        If it does not end in ``.svg``.
    """
    if path is not None and path.suffix.lower() != ".svg":
        raise ConfigError("the picture is an SVG", path, "let its name end in .svg")


def write_picture(path: Path, svg: str) -> None:
    """Write a picture, and say where."""
    from voxcast.files import write_text

    write_text(path, svg)
    logger.info("picture: %s", path)
