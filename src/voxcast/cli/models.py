"""``voxcast models``: versions of the registered model, the champion, and why it was promoted.

voxcast models list                      the versions, with every application; also without `list`
voxcast models diff A B                  in what two versions differ
voxcast models compare A B               which of two versions is better on all runs on record
voxcast models card [VERSION]            a version on one page
voxcast models verify [VERSION]          whether its files are unchanged
voxcast models pull [VERSION]            fetch the champion, or another version, from MLflow
voxcast models promote --app NAME        register the newest model although the rule refused it
voxcast models rollback [VERSION]        return to an older version; --app NAME: of one application
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
from typing import Any

from voxcast import project
from voxcast.cli.shared_options import add_project_argument
from voxcast.cli.verb_parser import VerbParser, meant
from voxcast.errors import ConfigError

logger = logging.getLogger(__name__)

LIST = "list"
# Modules of `voxcast models ACTION`, each with a main.
ACTIONS = {
    action: f"models_{action}"
    for action in ("diff", "compare", "card", "verify", "pull", "promote", "rollback")
}


def main(argv: list[str]) -> int:
    """List the versions, or take the action that the first argument names."""
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
        help="only look after MLflow's registry: if it was lost or replaced, the next `dvc repro` "
        "fills it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on stdout")
    add_project_argument(parser)
    args = parser.parse_args(argv[1:] if argv[:1] == [LIST] else argv)
    folder = project.require(args.project)
    if args.refresh:
        from voxcast.tracking.registry import forget_lost

        if forget_lost(folder):
            logger.info("the registry was lost or replaced; the next `dvc repro` fills it")
        return 0
    from voxcast.serving.model_store import ModelStore

    rows = ModelStore.of(folder).listed()
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"version {row['version']:>3} {'champion' if row['champion'] else ''}".rstrip())
        for app, facts in row["apps"].items():
            new = "; new in this version" if app == row.get("promoted") else ""
            print(f"  {app}: {_facts(facts)}{new}")
    return 0


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
