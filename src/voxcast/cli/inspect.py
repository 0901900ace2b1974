"""``voxcast inspect IMAGE…``: header and image characteristics, as in the catalogue."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from voxcast.images.headers import read_header


def main(argv: list[str]) -> int:
    """Print the header's columns and, without ``--header-only``, the characteristics."""
    parser = argparse.ArgumentParser(prog="voxcast inspect", description=__doc__)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--header-only", action="store_true", help="do not read voxels")
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    args = parser.parse_args(argv)
    rows = []
    for path in args.images:
        columns: dict[str, object] = {"path": str(path), **read_header(path).columns()}
        if not args.header_only:
            from voxcast.images.characteristics import characteristics
            from voxcast.images.volumes import load_coarse

            columns |= characteristics(load_coarse(path))
        rows.append(columns)
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for columns in rows:
        for name, value in columns.items():
            print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
        print()
    return 0
