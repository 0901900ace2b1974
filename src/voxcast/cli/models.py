"""``voxcast models``: versions of the registered model, the champion, and why it was promoted."""

from __future__ import annotations

import argparse
import json
import logging

from voxcast import project
from voxcast.cli.shared_options import add_project_argument

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """List the versions, or let the next ``dvc repro`` fill a lost registry."""
    parser = argparse.ArgumentParser(prog="voxcast models", description=__doc__)
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="if the registry was lost or replaced, let the next `dvc repro` fill it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    from voxcast.tracking import registry

    if args.refresh:
        if registry.forget_lost(project.require(args.project)):
            logger.info("the registry was lost or replaced; the next `dvc repro` fills it")
        return 0
    rows = registry.listing(project.find(args.project))
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"version {row['version']:>3} {'champion' if row['champion'] else ''}".rstrip())
        for app, facts in row["apps"].items():
            print(f"  {app}: {', '.join(f'{name} {value}' for name, value in facts.items())}")
    return 0
