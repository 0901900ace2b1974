"""``voxcast models verify [VERSION]``: whether its files are those that were registered."""

from __future__ import annotations

import json

from voxcast.cli.registry_options import action_parser, quiet_mlflow
from voxcast.cli.shared_options import registry_address
from voxcast.errors import EXIT_BAD_INPUT, ModelError
from voxcast.quantities import counted


def main(argv: list[str]) -> int:
    """Compare every file of a version with the hashes in the registry; 2 if one differs."""
    description = (
        "Compare every file of a version with the hashes that were recorded in the registry. "
        "MLflow's own servers run the code file of a model: verify it before they do."
    )
    parser = action_parser("verify", description, "one JSON object on stdout")
    parser.add_argument("version", nargs="?", help="default: the champion")
    args = parser.parse_args(argv)
    from voxcast.serving.registry.registered_files import TAG, hashes_of
    from voxcast.serving.registry.verification import all_problems
    from voxcast.tracking.registered_versions import (
        model_folder,
        version_or_champion,
    )

    uri = registry_address(args.project)
    with quiet_mlflow():
        version = version_or_champion(uri, args.version)
        if TAG not in version.tags:
            raise ModelError(
                "was registered by a release that recorded no hashes of files",
                f"version {version.number}",
                "`voxcast models promote --app NAME` registers a model anew",
            )
        folder = model_folder(uri, version)
        problems = all_problems(folder, version.tags)
        count = len(hashes_of(folder))
    if args.json:
        content = {"version": version.number, "folder": str(folder), "problems": problems}
        print(json.dumps(content, indent=2))
    elif problems:
        for name, problem in problems.items():
            print(f"{name}: {problem}")
    else:
        print(f"version {version.number}: {counted(count, 'file')} and all forecasters "
              "are those that were registered")  # fmt: skip
    return EXIT_BAD_INPUT if problems else 0
