"""``voxcast models``: versions of the registered model, which is champion, and why."""

from __future__ import annotations

import argparse
import json
import sys

from voxcast.cli import project


def main(argv: list[str]) -> int:
    """List the versions, or make sure that a lost registry is filled again."""
    parser = argparse.ArgumentParser(prog="voxcast models", description=__doc__)
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="if the registry is gone or another one, have the next `dvc repro` fill it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    project.add_argument(parser)
    args = parser.parse_args(argv)
    from voxcast.tracking import registry

    if args.refresh:
        if registry.forget_lost(project.require(args.project)):
            print("the registry is another one or gone: it is filled again", file=sys.stderr)
        return 0
    rows = registry.listing(project.find(args.project))
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    shown = ("family", "reason", "calibrated", "subjects", "cv_objective", "promoted_at")
    for row in rows:
        name = "champion" if row["champion"] else ""
        facts = ", ".join(f"{key} {row[key]}" for key in shown if key in row)
        print(f"version {row['version']:>3} {name:9} {facts}")
    return 0
