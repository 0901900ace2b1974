"""The newest model of an application, for ``voxcast models promote``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from voxcast.cli.quiet_mlflow import quiet_mlflow
from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from voxcast.tracking.promotion import Rule
    from voxcast.tracking.rivals import AppFacts, Challenger
    from voxcast.tracking.runs import Session


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
    from voxcast.tracking.rivals import challengers

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
