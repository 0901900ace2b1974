"""``voxcast models card [VERSION]``: a version on one page of Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict

from voxcast import project
from voxcast.cli.registry_options import action_parser


def main(argv: list[str]) -> int:
    """Print the card of a version."""
    description = "Print what a version is: data, errors, coverage, ranges, limits."
    parser = action_parser("card", description, "the card and its facts as one JSON object")
    parser.add_argument("version", nargs="?", help="default: the champion")
    args = parser.parse_args(argv)
    from voxcast.serving.model_card import model_card
    from voxcast.serving.model_store import ModelStore

    bundle = ModelStore.of(project.require(args.project)).open(args.version)
    card = model_card(bundle)
    if args.json:
        facts = {"version": bundle.version, **asdict(bundle.origin), "apps": bundle.facts}
        print(json.dumps({**facts, "card": card}, indent=2))
    else:
        print(card, end="")
    return 0
