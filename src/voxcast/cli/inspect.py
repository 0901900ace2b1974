"""``voxcast inspect IMAGE…``: header and image characteristics, as in the catalogue.

``--list`` shows all characteristics with unit, cost and source. In a project its own
are shown too.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.shared_options import (
    add_max_voxels_argument,
    add_project_argument,
)
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ConfigError, ImageError, one_line
from voxcast.images.header import log_itk_refusals
from voxcast.images.volume import POINTS, Volume
from voxcast.quantities import format_voxels
from voxcast.text_table import text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from voxcast.images.characteristics import Characteristic

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print the header's columns and, without ``--header-only``, the characteristics."""
    parser = VerbParser(prog="voxcast inspect", description=__doc__)
    parser.add_argument("images", nargs="*", type=Path, metavar="IMAGE")
    parser.add_argument("--list", action="store_true", help="list the characteristics instead")
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_max_voxels_argument(parser)
    add_project_argument(parser)
    args = parser.parse_intermixed_args(argv)
    if not args.images and not args.list:
        parser.error("needs an image, or --list")
    lab = {} if args.header_only else _of_project(project.find(args.project))
    if args.list:
        return _list(lab, as_json=args.json)
    rows = []
    for path in args.images:
        try:
            volume = Volume.open(path)
            columns: dict[str, object] = {"path": str(path), **volume.header.columns()}
            if not args.header_only:
                columns |= _of_voxels(volume, args.max_voxels, lab)
        except ImageError as error:  # the other images are still shown
            logger.error("%s", one_line(error))
            continue
        log_itk_refusals([(path, volume.itk_refusal)])
        rows.append(columns)
    if args.json and rows:
        print(json.dumps(rows, indent=2))
    for columns in [] if args.json else rows:
        for name, value in columns.items():
            print(f"{name:28} {_text(name, value, lab)}")
        print()
    return 0 if len(rows) == len(args.images) else EXIT_BAD_INPUT


def _of_project(folder: Path | None) -> dict[str, Characteristic]:
    """Return the characteristics that a project adds; without them if they cannot be had."""
    if folder is None:
        return {}
    from voxcast.config.load import project_characteristics

    try:
        return project_characteristics(folder)
    except ConfigError as error:  # voxcast's own are shown nevertheless
        logger.warning("what the project adds is not shown: %s", one_line(error))
        return {}


def _of_voxels(
    volume: Volume, max_voxels: int, lab: Mapping[str, Characteristic]
) -> dict[str, float]:
    """Return the characteristics of an image; of the project's, as many as could be computed."""
    from voxcast.images.summary import Grids, summarise

    summary = summarise(volume, Grids(POINTS), max_voxels, lab)
    summary.log_failures(volume.path)
    return summary.characteristics


def _list(lab: Mapping[str, Characteristic], *, as_json: bool) -> int:
    from voxcast.images.characteristics import CHARACTERISTICS

    rows = [
        (entry.name, entry.unit, entry.cost, entry.meaning, entry.source)
        for entry in {**CHARACTERISTICS, **lab}.values()
    ]
    heads = ("name", "unit", "cost", "meaning", "source")
    if as_json:
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows], indent=2))
    else:
        print(text_table([heads, *rows], "<<<<<"))
    return 0


def _text(name: str, value: object, lab: Mapping[str, Characteristic]) -> str:
    from voxcast.images.characteristics import CHARACTERISTICS

    if not isinstance(value, float):
        return str(value)
    if name.endswith("_voxels"):
        return format_voxels(value)
    entry = {**CHARACTERISTICS, **lab}.get(name)
    return f"{value:.4g} {entry.unit if entry else ''}".rstrip()
