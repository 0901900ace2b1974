"""``voxcast doctor``: what works on this machine and in this project, and what that means."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Annotated

from typer import Option

from voxcast import project as projects
from voxcast.cli import options
from voxcast.cli.machine_checks import machine_checks
from voxcast.cli.project_checks import installation_checks, project_checks
from voxcast.errors import EXIT_BAD_INPUT


def doctor(
    clean: Annotated[
        bool, Option("--clean", help="Remove what killed processes left behind.")
    ] = False,
    cached_fits: Annotated[
        bool, Option("--cached-fits", help="--clean: also fits that make learning faster.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="--clean: show what would be removed.")
    ] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show what works on this machine and in this project, and what that means.

    Each line is `works`; `limited`, if a worse method is used; `absent`, if something optional is
    not here; or `broken`, and then the exit code is 2. Measurements, results and models are never
    removed by --clean.
    """
    folder = projects.find(project)
    if clean:
        from voxcast.cli.clean import remove_leftovers

        return remove_leftovers(folder, cached_fits=cached_fits, dry_run=dry_run, as_json=as_json)
    checks = []
    for check in itertools.chain(
        installation_checks(folder), machine_checks(), project_checks(folder)
    ):
        checks.append(check)
        if not as_json:
            print(f"{check.status:8} {check.name:17} {check.fact}")
            if check.meaning and check.status != "works":
                print(f"{'':26} {check.meaning}")
    if as_json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else 0
