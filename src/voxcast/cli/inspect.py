"""``voxcast inspect IMAGE…``: header and image characteristics, as in the catalogue."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from voxcast.cli.shared_options import add_max_voxels_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT, ImageError, one_line
from voxcast.images.headers import read_header
from voxcast.quantities import format_voxels

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print the header's columns and, without ``--header-only``, the characteristics."""
    parser = VerbParser(prog="voxcast inspect", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_max_voxels_argument(parser)
    args = parser.parse_intermixed_args(argv)
    rows = []
    for path in args.images:
        try:
            columns: dict[str, object] = {"path": str(path), **read_header(path).columns()}
            if not args.header_only:
                from voxcast.images.characteristics import characteristics
                from voxcast.images.volumes import load_coarse

                columns |= characteristics(load_coarse(path, max_voxels=args.max_voxels))
        except ImageError as error:  # the other images are still shown
            logger.error("%s", one_line(error))
            continue
        rows.append(columns)
    if args.json and rows:
        print(json.dumps(rows, indent=2))
    for columns in [] if args.json else rows:
        for name, value in columns.items():
            print(f"{name:28} {_text(name, value)}")
        print()
    return 0 if len(rows) == len(args.images) else EXIT_BAD_INPUT


def _text(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return format_voxels(value) if name.endswith("_voxels") else f"{value:.4g}"
