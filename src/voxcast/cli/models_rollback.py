"""``voxcast models rollback [VERSION]``: return to an older version."""

from __future__ import annotations

import json

from voxcast import project
from voxcast.cli.registry_options import action_parser, quiet_mlflow


def main(argv: list[str]) -> int:
    """Return to an older version."""
    parser = action_parser("rollback", "Return to an older version of the model.")
    parser.add_argument("version", nargs="?", help="default: the one that was replaced last")
    parser.add_argument("--app", help="only this application; makes a new version")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    from voxcast.tracking.versions import roll_back

    with quiet_mlflow():
        receipt = roll_back(folder, args.version, args.app)
    if args.json:
        print(json.dumps(receipt, indent=2))
        return 0
    names = args.app or ", ".join(receipt["restored"])
    print(f"version {receipt['version']} is champion; {names} as in version "
          f"{receipt['to_version']}")  # fmt: skip
    if receipt["removed"]:
        print("  `voxcast learn` will not promote what was replaced; `voxcast models promote` can")
    return 0
