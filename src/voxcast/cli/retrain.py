"""A new model of all runs on record, if it is better: ``voxcast learn --retrain``.

A challenger is fitted on the history as it has grown, and compared with the champion on the newest
jobs, from which neither has learned. It becomes the champion by the rule of the registry: if it is
shown to be better there. Then it is fitted once more with these jobs. With too few new jobs
nothing is changed.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from voxcast import project as projects
from voxcast.cli import options
from voxcast.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from voxcast.config.app_history import AppHistory
    from voxcast.serving.bundle import Bundle

logger = logging.getLogger(__name__)


def retrain_apps(
    project: Path | None,
    app: str | None,
    budget_s: float | None,
    trials: int | None,
    *,
    as_json: bool,
) -> int:
    """Retrain the applications of the champion, or one; return the exit code."""
    if budget_s == 0:
        raise ConfigError("must be above 0", "--time-budget")
    folder = projects.require(project)

    from voxcast.graph import learning_lock
    from voxcast.serving.model_store import ModelStore

    with learning_lock(folder), contextlib.redirect_stdout(sys.stderr):
        bundle = ModelStore.of(folder).current()
        names = [app] if app else sorted(bundle.apps if bundle else ())
        if not names:
            raise ModelError("the registry has no champion", folder, "name an --app to learn")
        receipts = {name: _retrained(folder, name, bundle, budget_s, trials) for name in names}
    lines = (line for name, receipt in receipts.items() for line in _lines(name, receipt))
    return options.show(receipts, lines, as_json=as_json)


def _retrained(
    folder: Path, name: str, bundle: Bundle | None, budget_s: float | None, trials: int | None
) -> dict[str, Any]:
    from voxcast.config.app_history import app_history
    from voxcast.config.served_facts import app_facts, promotion_rule
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.tracking import runs
    from voxcast.tracking.challengers import retrain

    has_champion = bundle is not None and name in bundle.apps
    forecaster = bundle.forecaster(name) if bundle is not None and has_champion else None
    history = app_history(folder, name, forecaster).on_training_side()
    cfg, table = history.config, history.table
    validation = Validation(
        table, history.volumes, cfg.tune.folds, cfg.tune.seed, stopped=history.stopped
    )

    def on_step(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    for reason, count in history.left_out.items():
        logger.info("%s: %d runs are left out: %s", name, count, reason)
    facts = app_facts(cfg, name, table)
    tuning = _tuning(history, budget_s, trials)
    rule = promotion_rule(cfg)
    return retrain(runs.connect(folder), folder, facts, validation, tuning, rule, on_step=on_step)


def _tuning(history: AppHistory, budget_s: float | None, trials: int | None) -> Any:
    """Return families, trials and budget; the network only where it can see most volumes."""
    from voxcast.models.families.family import family
    from voxcast.tracking.challengers import Tuning

    tune = history.config.tune
    sees = bool(((history.volumes["shape"] > 0).all(axis=1)).mean() > 0.5)
    names = tuple(name for name in tune.families if sees or not family(name).needs_volume)
    return Tuning(names, trials or tune.trials, budget_s or tune.budget_s)


def _lines(name: str, receipt: dict[str, Any]) -> Iterator[str]:
    from voxcast.tracking.challengers import TOO_LITTLE

    if receipt["reason"] == TOO_LITTLE:
        yield f"{name}: too few new jobs, nothing was changed: {receipt['detail']}"
        return
    stays = "the champion stays" if not receipt["registered"] else None
    became = stays or f"{receipt['champion']} is champion"
    yield f"{name}: {became}, version {receipt['version']}: {receipt['reason']}"
    if "judged" in receipt:
        newest = receipt["judged"]
        yield (
            f"  judged on {newest['runs']} runs of {newest['subjects']} subjects since "
            f"{newest['since']}; {receipt['new']['runs']} runs are new"
        )
    yield f"  {receipt['detail']}"
    if receipt["registered"] and receipt["reason"] != "first":
        yield "  `voxcast models rollback` returns to the former champion"
