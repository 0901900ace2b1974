"""``voxcast models promote --app NAME``: register the newest model although it was refused."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.registry_options import action_parser, quiet_mlflow
from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Register the challenger of an application by a person's decision."""
    parser = action_parser("promote", "Register the newest model of an application nevertheless.")
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
