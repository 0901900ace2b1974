"""Finding the project that a verb works on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast.errors import ConfigError

if TYPE_CHECKING:
    import argparse

MARK = "params.yaml"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--project`` to a verb's parser."""
    parser.add_argument(
        "--project",
        type=Path,
        help="project folder (default: VOXCAST_PROJECT, else the nearest one above)",
    )


def find(given: Path | None) -> Path | None:
    """Return the project folder, or None if there is none to be found.

    Raises
    ------
    ConfigError
        If a folder was named, by argument or environment, that is no project.
    """
    named = given or (Path(p) if (p := os.environ.get("VOXCAST_PROJECT")) else None)
    if named is not None:
        if not (named / MARK).is_file():
            raise ConfigError(f"not a project: it has no {MARK}", named)
        return named.resolve()
    here = Path.cwd().resolve()
    return next((f for f in (here, *here.parents) if (f / MARK).is_file()), None)


def require(given: Path | None) -> Path:
    """Return the project folder.

    Raises
    ------
    ConfigError
        If there is none.
    """
    found = find(given)
    if found is None:
        raise ConfigError(
            "no project here or above", Path.cwd(), "cd into one or give --project DIR"
        )
    return found
