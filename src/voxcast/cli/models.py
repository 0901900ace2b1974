"""``voxcast models``: versions of the registered model, the champion, and why it was promoted.

voxcast models list                      the versions, with every application; also without `list`
voxcast models diff A B                  in what two versions differ
voxcast models compare A B               which of two versions is better on all runs on record
voxcast models card [VERSION]            what a version is, on one page
voxcast models verify [VERSION]          whether its files are those that were registered
voxcast models promote --app NAME        register the newest model although the rule refused it
voxcast models rollback [VERSION]        return to an older version; --app NAME: of one application
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.shared_options import add_project_argument, registry_address
from voxcast.cli.verb_parser import VerbParser, meant
from voxcast.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

LIST = "list"
# Modules of `voxcast models ACTION`, each with a main.
ACTIONS = {
    action: f"models_{action}"
    for action in ("diff", "compare", "card", "verify", "promote", "rollback")
}


def main(argv: list[str]) -> int:
    """List the versions, or do what the first argument names."""
    if argv and argv[0] in ACTIONS:
        code: int = importlib.import_module(f"voxcast.cli.{ACTIONS[argv[0]]}").main(argv[1:])
        return code
    if argv and not argv[0].startswith("-") and argv[0] != LIST:
        then = meant(argv[0], [LIST, *ACTIONS], "see `voxcast models --help`")
        raise ConfigError("unknown action", argv[0], then)
    parser = VerbParser(
        prog="voxcast models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="only look after the registry: if it was lost or replaced, the next `dvc repro` "
        "fills it; if the project was moved, its paths are mended",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv[1:] if argv[:1] == [LIST] else argv)
    if args.refresh:
        from voxcast.tracking.registry import forget_lost

        if forget_lost(project.require(args.project)):
            logger.info("the registry was lost or replaced; the next `dvc repro` fills it")
    uri = registry_address(args.project)
    _relocate(project.find(args.project), uri)
    if args.refresh:
        return 0
    from voxcast.serving.registry.registered_files import TAG as FILES_TAG
    from voxcast.tracking.registered_versions import versions

    present = versions(uri)
    if args.json:
        rows = [
            {
                "version": v.number,
                "champion": v.is_champion,
                **{name: value for name, value in v.tags.items() if name != FILES_TAG},
                "apps": v.apps,
            }
            for v in present
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for version in present:
        alias = "champion" if version.is_champion else ""
        print(f"version {version.number:>3} {alias}".rstrip())
        for app, facts in version.apps.items():
            new = "; new in this version" if app == version.tags.get("promoted") else ""
            print(f"  {app}: {_facts(facts)}{new}")
    return 0


def _relocate(folder: Path | None, uri: str) -> None:
    """Mend the paths of a project that was moved; what keeps them from it is only a warning."""
    from voxcast.tracking.relocation import relocate

    if folder is not None:
        try:
            relocate(folder, uri)
        except ModelError as error:
            logger.warning("%s", error)


def _facts(facts: dict[str, Any] | None) -> str:
    from voxcast.models.selection.promotion_rule import REASONS

    if facts is None:
        return "damaged"
    calibrated = "calibrated" if facts["calibrated"] else "not calibrated"
    subjects, error = f"{facts['subjects']} subjects", f"{facts['cv_objective']:.4f}"
    if facts["subjects"] == 1:  # its errors are over its own runs
        subjects, error = "1 subject", "not known (1 subject)"
    return (
        f"{facts['family']}, {subjects}, {calibrated}, "
        f"log error {error}, promoted {facts['promoted_at']}: "
        f"{REASONS.get(facts['reason'], facts['reason'])}"
    )
