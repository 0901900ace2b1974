"""``voxcast models verify [VERSION]``: whether its files are unchanged."""

from __future__ import annotations

import json

from voxcast import project
from voxcast.cli.registry_options import action_parser
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.quantities import counted


def main(argv: list[str]) -> int:
    """Compare every file of a version with the hashes on record; 2 if one differs."""
    description = "Compare every file of a version with the hashes that were recorded of it."
    parser = action_parser("verify", description, "one JSON object on stdout")
    parser.add_argument("version", nargs="?", help="default: the champion")
    args = parser.parse_args(argv)
    from voxcast.serving.bundle import plain_files
    from voxcast.serving.model_store import ModelStore

    bundle = ModelStore.of(project.require(args.project)).open(args.version)
    problems = bundle.problems()
    if args.json:
        content = {"version": bundle.version, "folder": str(bundle.folder), "problems": problems}
        print(json.dumps(content, indent=2))
    elif problems:
        for name, problem in problems.items():
            print(f"{name}: {problem}")
    else:
        count = counted(len(plain_files(bundle.folder)), "file")
        print(f"version {bundle.version}: {count}, all of them as they were registered")
    return EXIT_BAD_INPUT if problems else 0
