"""``voxcast models promote --app NAME``: register the newest model although it was refused."""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING

from voxcast import project
from voxcast.cli.registry_options import action_parser, quiet_mlflow
from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from voxcast.tracking.challengers import AppFacts, Challenger
    from voxcast.tracking.promotion import Rule
    from voxcast.tracking.runs import Session

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Register the challenger of an application by a person's decision."""
    parser = action_parser("promote", "Register the newest model of an application nevertheless.")
    parser.add_argument("--app", required=True, help="application")
    args = parser.parse_args(argv)
    folder = project.require(args.project)
    with newest_model(folder, args.app) as (session, app, challenger, rule):
        from voxcast.tracking.promotion import promote

        receipt = promote(session, folder, app, challenger, rule, by_hand=True)
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


@contextlib.contextmanager
def newest_model(folder: Path, name: str) -> Iterator[tuple[Session, AppFacts, Challenger, Rule]]:
    """Hold the project while the newest model of an application is used, without MLflow's talk.

    Raises
    ------
    ModelError
        If no model of it was trained in the last pass.
    """
    from voxcast import config
    from voxcast.cli.project_locks import dvc_lock, learning_lock
    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import challengers

    # The stages of a pass write these files.
    with learning_lock(folder), dvc_lock(folder), quiet_mlflow():
        cfg = config.load(folder / config.PARAMS_FILE)
        by_app = challengers(folder, cfg.tune.folds, cfg.tune.seed)
        if name not in by_app or name not in cfg.apps:
            raise _not_in_last_pass(name, by_app, folder)
        challenger = by_app[name]
        app = app_facts(cfg, name, challenger.table)
        yield runs.connect(folder), app, challenger, promotion_rule(cfg)


def _not_in_last_pass(app: str, by_app: Iterable[str], folder: Path) -> ModelError:
    """Return the error of an application without a model in the last pass."""
    from voxcast.serving.model_store import ModelStore

    trained = ", ".join(sorted(by_app))
    versions = ModelStore.of(folder).pointer().versions.values()
    registered = {name for version in versions for name in version.apps}
    if app in registered:
        reason = f"the last pass of learning was of {trained}, so no new model of it is at hand"
        return ModelError(reason, app, f"run `voxcast learn --app {app}` first")
    names = ", ".join(sorted({*by_app, *registered}))
    return ModelError(f"unknown application; models were trained for {names}", app)
