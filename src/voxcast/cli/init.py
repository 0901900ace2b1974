"""``voxcast init``: write a project for the installed package, in any folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument

from voxcast.cli import options


def init(
    folder: Annotated[
        Path,
        Argument(
            metavar="[DIR]",
            show_default=False,
            help="Folder of the project, made if missing; by default the current one.",
        ),
    ] = Path(),
    as_json: options.Json = False,
) -> int:
    """Write a project for your own images and applications, and name the next commands."""
    from voxcast.config.project_files import create_project
    from voxcast.tracking.address import DATABASE, address_of

    address_of(folder.resolve() / DATABASE)  # a folder that MLflow cannot address
    names = create_project(folder)
    if as_json:
        print(json.dumps({"project": str(folder.resolve()), "files": names}))
        return 0
    print(f"project in {folder.resolve()}: {len(names)} files")
    if folder != Path():
        print(f"  cd {shlex.quote(str(folder))}")
    print("  voxcast app new NAME --command 'tool --in {image} --out {out} --threads {cpus}'")
    print("  voxcast learn IMAGES --app NAME")
    return 0
