"""``voxcast models``: versions of the registered model, the champion, and why it was promoted.

voxcast models                           list the versions, with every application
voxcast models promote --app NAME        register the newest model although the rule refused it
voxcast models rollback [VERSION]        return to an older version; --app NAME: of one application
voxcast models compare A B               compare two versions on all runs on record
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from voxcast import project
from voxcast.cli.shared_options import add_project_argument, registry_address
from voxcast.cli.verb_parser import VerbParser
from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """List the versions, or promote, roll back or compare."""
    actions = {"promote": _promote, "rollback": _roll_back, "compare": _compare}
    if argv and argv[0] in actions:
        return actions[argv[0]](argv[1:])
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
    args = parser.parse_args(argv)
    if args.refresh:
        from voxcast.tracking.registry import forget_lost

        if forget_lost(project.require(args.project)):
            logger.info("the registry was lost or replaced; the next `dvc repro` fills it")
    uri = registry_address(args.project)
    _relocate(project.find(args.project), uri)
    if args.refresh:
        return 0
    from voxcast.tracking.registered_versions import versions

    present = versions(uri)
    if args.json:
        rows = [
            {"version": v.number, "champion": v.is_champion, **v.tags, "apps": v.apps}
            for v in present
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for version in present:
        print(f"version {version.number:>3} {'champion' if version.is_champion else ''}".rstrip())
        for app, facts in version.apps.items():
            new = "; this version was made for it" if app == version.tags.get("promoted") else ""
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


def _parser(action: str, description: str) -> argparse.ArgumentParser:
    parser = VerbParser(prog=f"voxcast models {action}", description=description)
    parser.add_argument("--json", action="store_true", help="the receipt on stdout")
    add_project_argument(parser)
    return parser


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Keep what MLflow prints off stdout."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _promote(argv: list[str]) -> int:
    """Register the challenger of an application by a person's decision."""
    parser = _parser("promote", "Register the newest model of an application nevertheless.")
    parser.add_argument("--app", required=True, help="application")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    from voxcast import config
    from voxcast.cli.project_locks import dvc_lock, learning_lock
    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import challengers
    from voxcast.tracking.promotion import promote
    from voxcast.tracking.runs import tracking_uri

    # The stages of a pass write what is read here.
    with learning_lock(folder), dvc_lock(folder), quiet_mlflow():
        cfg = config.load(folder / config.PARAMS_FILE)
        by_app = challengers(folder, cfg.tune.folds, cfg.tune.seed)
        if args.app not in by_app or args.app not in cfg.apps:
            raise _not_in_last_pass(args.app, by_app, tracking_uri(folder))
        challenger = by_app[args.app]
        app = app_facts(cfg, args.app, set(challenger.table["device"]))
        rule = promotion_rule(cfg)
        receipt = promote(runs.connect(folder), folder, app, challenger, rule, by_hand=True)
    if args.json:
        print(json.dumps(receipt, indent=2))
    elif receipt["registered"]:
        print(f"{args.app}: {receipt['champion']} is champion, version {receipt['version']}")
        print(f"  {receipt['detail']}")
    else:
        print(f"{args.app}: {receipt['detail']}; nothing was changed")
    for sentence in receipt["under_load"]:
        logger.warning("%s", sentence)
    return 0


def _not_in_last_pass(app: str, by_app: Iterable[str], uri: str) -> ModelError:
    """Return the error of an application of which no model was trained in the last pass."""
    from voxcast.tracking.registered_versions import applications

    trained = ", ".join(sorted(by_app))
    registered = applications(uri)
    if app in registered:
        reason = f"the last pass of learning was of {trained}, so no new model of it is at hand"
        return ModelError(reason, app, f"run `voxcast learn --app {app}` first")
    names = ", ".join(sorted({*by_app, *registered}))
    return ModelError(f"unknown application; models were trained for {names}", app)


def _roll_back(argv: list[str]) -> int:
    """Return to an older version."""
    parser = _parser("rollback", "Return to an older version of the model.")
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
        print("  what was replaced is not promoted again, unless by `voxcast models promote`")
    return 0


def _compare(argv: list[str]) -> int:
    """Compare two versions."""
    parser = _parser("compare", "Compare two versions on the same held-out subjects on record.")
    parser.add_argument("first", metavar="A", help="a version")
    parser.add_argument("second", metavar="B", help="another version")
    parser.add_argument("--app", help="default: every application that both have")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    from voxcast.tracking.runs import tracking_uri
    from voxcast.tracking.versions import bundles_to_compare, compare_bundles

    numbers = args.first, args.second
    with quiet_mlflow():
        bundles = bundles_to_compare(tracking_uri(folder), numbers, args.app)
        from voxcast import config
        from voxcast.models.selection.validations import validations

        cfg = config.load(folder / config.PARAMS_FILE)
        by_app = validations(folder, cfg.tune.folds, cfg.tune.seed)
        receipt = compare_bundles(folder, by_app, numbers, bundles, args.app)
    if args.json:
        print(json.dumps(receipt, indent=2))
        return 0
    for app, comparison in receipt["apps"].items():
        print(f"{app}: {_compared(comparison, args.first, args.second)}")
    return 0


def _compared(comparison: dict[str, Any] | None, first: str, second: str) -> str:
    from voxcast.models.selection.promotion_rule import held_out

    if comparison is None:
        return "no subject is on record on which both could be judged"
    if "same_forecaster" in comparison:
        return "both versions have the same forecaster"
    errors = [comparison[name]["value"] for name in ("challenger", "champion")]
    gain = comparison["gain"]
    text = (
        f"mean log error {errors[0]:.4f} of version {first}, {errors[1]:.4f} of version {second}, "
        f"over {held_out(gain['subjects'])}"
    )
    if gain["low"] is None:
        return f"{text}; one subject decides nothing"
    better = first if gain["low"] > 0 else second if gain["high"] < 0 else None
    verdict = "no difference is shown" if better is None else f"version {better} is better"
    return (
        f"{text}; {verdict} (difference {gain['value']:+.4f}, 95 % interval "
        f"{gain['low']:+.4f} to {gain['high']:+.4f})"
    )
