"""``voxcast models``: versions of the registered model, the champion, and why it was promoted."""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Option

from voxcast import config
from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import EXIT_BAD_INPUT, ModelError
from voxcast.quantities import counted
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.versions import compare_versions, roll_back

Version = Annotated[str | None, Argument(metavar="[VERSION]", show_default=False)]
Contender = Annotated[str, Argument(metavar="A", show_default=False)]
Other = Annotated[str, Argument(metavar="B", show_default=False)]

logger = logging.getLogger(__name__)


def list_versions(
    refresh: Annotated[
        bool,
        Option("--refresh", hidden=True),  # `make repro`: fill a registry that was lost
    ] = False,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """List the versions, newest first, with every application."""
    folder = projects.require(project)
    if refresh:
        from voxcast.tracking.registry import forget_lost

        if forget_lost(folder):
            logger.info("the registry was lost or replaced; the next `dvc repro` fills it")
        return 0
    rows = ModelStore.of(folder).listed()
    lines = [] if rows else ["no version yet; train a model with `voxcast learn`"]
    for row in rows:
        lines.append(
            f"version {row['version']:>3} {'champion' if row['champion'] else ''}".rstrip()
        )
        for app, facts in row["apps"].items():
            new = "; new in this version" if app == row.get("promoted") else ""
            lines.append(f"  {app}: {_facts(facts)}{new}")
    return options.show(rows, lines, as_json=as_json)


def show(
    version: Version = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Show a version on one page, and whether its files are unchanged.

    The exit code is 2 if a file is not as it was registered.
    """
    from voxcast.serving.bundle import plain_files
    from voxcast.serving.model_card import model_card

    bundle = ModelStore.of(projects.require(project)).open(version)
    problems, card = bundle.problems(), model_card(bundle)
    facts = {
        "version": bundle.version, **asdict(bundle.origin),
        "apps": {name: app.to_json() for name, app in bundle.apps.items()},
        "problems": problems, "card": card,
    }  # fmt: skip
    files = counted(len(plain_files(bundle.folder)), "file")
    lines = [
        card, "Changed files:" if problems else f"{files}, all of them as they were registered",
        *(f"{name}: {problem}" for name, problem in problems.items()),
    ]  # fmt: skip
    options.show(facts, lines, as_json=as_json)
    return EXIT_BAD_INPUT if problems else 0


def compare(
    first: Contender,
    second: Other,
    app: options.App = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Compare two versions on the same held-out subjects on record."""
    from voxcast.models.selection.cross_validation import Validation, validations

    folder = projects.require(project)

    def runs_on_record() -> dict[str, Validation]:
        cfg = config.load(folder / config.PARAMS_FILE)
        return validations(folder, cfg.tune.folds, cfg.tune.seed)

    receipt = compare_versions(folder, (first, second), runs_on_record, app)
    lines = (f"{name}: {_compared(c, first, second)}" for name, c in receipt["apps"].items())
    return options.show(receipt, lines, as_json=as_json)


def promote(
    app: Annotated[str, Option("--app", metavar="NAME", help="An application of conf/app.")],
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Register the newest model of an application, although the rule refused it."""
    folder = projects.require(project)

    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.graph import dvc_lock, learning_lock
    from voxcast.tracking import promotion, runs
    from voxcast.tracking.challengers import challengers

    # The stages write these files; MLflow prints to stdout, where the result alone goes.
    with learning_lock(folder), dvc_lock(folder), contextlib.redirect_stdout(sys.stderr):
        cfg = config.load(folder / config.PARAMS_FILE)
        trained = challengers(folder, cfg.tune.folds, cfg.tune.seed)
        if app not in trained or app not in cfg.apps:
            reason = f"was not learned last; models of {', '.join(sorted(trained))} were"
            raise ModelError(reason, app, f"run `voxcast learn --app {app}` first")
        receipt = promotion.promote(
            runs.connect(folder), folder, app_facts(cfg, app, trained[app].table), trained[app],
            promotion_rule(cfg), by_hand=True,
        )  # fmt: skip
    lines = [f"{app}: {receipt['detail']}; nothing was changed"]
    if receipt["registered"]:
        became = f"{app}: {receipt['champion']} is champion, version {receipt['version']}"
        lines = [became, f"  {receipt['detail']}"]
    options.show(receipt, lines, as_json=as_json)
    for sentence in receipt["under_load"]:
        logger.warning("%s", sentence)
    return 0


def rollback(
    version: Version = None,
    app: options.App = None,
    as_json: options.Json = False,
    project: options.Project = None,
) -> int:
    """Return to an older version, by default the one replaced last; or of one application."""
    folder = projects.require(project)

    with contextlib.redirect_stdout(sys.stderr):
        receipt = roll_back(folder, version, app)
    names = app or ", ".join(receipt["restored"])
    lines = [
        f"version {receipt['version']} is champion; {names} as in version {receipt['to_version']}"
    ]
    if receipt["removed"]:
        lines.append(
            "  `voxcast learn` will not promote what was replaced; `voxcast models promote` can"
        )
    return options.show(receipt, lines, as_json=as_json)


def pull(
    version: Version = None, as_json: options.Json = False, project: options.Project = None
) -> int:
    """Fetch the champion of MLflow's registry, or a version, and make it the champion here.

    Its files must be as registered. Versions that are here are not fetched again.
    """
    folder = projects.require(project)
    from voxcast.tracking.address import tracking_uri
    from voxcast.tracking.registry import pull as fetched

    number = fetched(ModelStore.of(folder), tracking_uri(folder), version)
    return options.show({"version": number}, [f"version {number} is champion"], as_json=as_json)


ACTIONS = {
    "": list_versions,
    "list": list_versions,
    "show": show,
    "compare": compare,
    "promote": promote,
    "rollback": rollback,
    "pull": pull,
}


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
