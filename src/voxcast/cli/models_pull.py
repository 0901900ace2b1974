"""``voxcast models pull [VERSION]``: fetch a version from MLflow's registry."""

from __future__ import annotations

import json

from voxcast import project
from voxcast.cli.registry_options import action_parser


def main(argv: list[str]) -> int:
    """Fetch a version, check its files, and make it the champion."""
    description = (
        "Fetch the champion of MLflow's registry, or another version, check that its files are "
        "those that were registered, and make it the champion here. Versions that are here "
        "already are not fetched again."
    )
    parser = action_parser("pull", description, "one JSON object on stdout")
    parser.add_argument("version", nargs="?", help="default: the one with the alias champion")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    from voxcast.serving.model_store import ModelStore
    from voxcast.tracking.address import tracking_uri
    from voxcast.tracking.registry import pull

    number = pull(ModelStore.of(folder), tracking_uri(folder), args.version)
    if args.json:
        print(json.dumps({"version": number}))
    else:
        print(f"version {number} is champion")
    return 0
