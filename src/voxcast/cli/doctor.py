"""``voxcast doctor``: what works on this machine and in this project, and what that means.

Each line is ``works``; ``limited``, if a worse method is used; ``absent``, if something optional
is not here; or ``broken``. The exit code is 2 if anything is broken, else 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json

from voxcast import project
from voxcast.cli.machine_checks import machine_checks
from voxcast.cli.project_checks import installation_checks, project_checks
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import EXIT_BAD_INPUT


def main(argv: list[str]) -> int:
    """Print one line for each check."""
    parser = VerbParser(
        prog="voxcast doctor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv)
    folder = project.find(args.project)
    checks = []
    for check in itertools.chain(
        installation_checks(folder), machine_checks(), project_checks(folder)
    ):
        checks.append(check)
        if not args.json:
            print(f"{check.status:8} {check.name:17} {check.fact}")
            if check.meaning and check.status != "works":
                print(f"{'':26} {check.meaning}")
    if args.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else 0
