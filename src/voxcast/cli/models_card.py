"""``voxcast models card [VERSION]``: what a version is, on one page of Markdown."""

from __future__ import annotations

import json

from voxcast.cli.registry_options import action_parser, quiet_mlflow
from voxcast.cli.shared_options import registry_address


def main(argv: list[str]) -> int:
    """Print the card of a version."""
    description = "Print what a version is: data, errors, coverage, ranges, limits."
    parser = action_parser("card", description, "the card and its facts as one JSON object")
    parser.add_argument("version", nargs="?", help="default: the champion")
    args = parser.parse_args(argv)
    from voxcast.serving.model_card import model_card
    from voxcast.tracking.registered_versions import (
        bundle_of,
        version_or_champion,
    )

    uri = registry_address(args.project)
    with quiet_mlflow():
        version = version_or_champion(uri, args.version)
        bundle = bundle_of(uri, version)
        card = model_card(bundle, version.number, version.tags)
    if args.json:
        facts = {"version": version.number, "tags": version.tags, "apps": bundle.facts}
        print(json.dumps({**facts, "card": card}, indent=2))
    else:
        print(card, end="")
    return 0
