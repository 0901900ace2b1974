"""``voxcast init [DIR]``: write a project for the installed package, in any folder."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path


def main(argv: list[str]) -> int:
    """Write a project and name the next commands."""
    parser = argparse.ArgumentParser(prog="voxcast init", description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="DIR",
        help="folder of the project, made if missing (default: the current one)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args(argv)
    from voxcast.config.project_files import create_project
    from voxcast.tracking.address import DATABASE, address_of

    address_of(args.folder.resolve() / DATABASE)  # a folder that MLflow cannot address
    names = create_project(args.folder)
    if args.json:
        print(json.dumps({"project": str(args.folder.resolve()), "files": names}))
        return 0
    place = "." if args.folder == Path() else shlex.quote(str(args.folder))
    print(f"project in {args.folder.resolve()}: {len(names)} files")
    if args.folder != Path():
        print(f"  cd {place}")
    print("  voxcast app new NAME --command 'tool --in {image} --out {out} --threads {cpus}'")
    print("  voxcast learn IMAGES --app NAME")
    return 0
