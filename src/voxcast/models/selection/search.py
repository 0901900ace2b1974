"""Tuning: Optuna over a family's parameters, judged by cross-validation grouped by subject."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.families.zoo import Params, family
from voxcast.models.selection.cross_validation import (
    Metrics,
    OutOfFold,
    Validation,
    error_metrics,
    objective,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import optuna


@dataclass(frozen=True)
class Trial:
    """One set of parameters tried; ``metrics`` is empty when it was pruned."""

    number: int
    params: Params
    state: str
    duration_s: float
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """The outcome of tuning one family.

    Attributes
    ----------
    out_of_fold : OutOfFold
        Of the best trial.
    cut_short : bool
        Whether the clock ended it, so that another machine may find other parameters.
    """

    family: str
    params: Params
    metrics: Metrics
    out_of_fold: OutOfFold
    trials: tuple[Trial, ...]
    cut_short: bool


def tune(
    validation: Validation,
    name: str,
    *,
    trials: int,
    budget_s: float,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> Search:
    """Search a family's parameters on the training side.

    Parameters
    ----------
    validation : Validation
        Training runs; the same folds serve every family.
    name : str
        Family.
    trials : int
        At most this many; a family without parameters gets one.
    budget_s : float
        No trial is begun after this; the first always is.
    on_trial : callable
        Called with each trial when it is over.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chosen = family(name)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=validation.seed, n_startup_trials=4),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
    )
    if chosen.defaults:
        study.enqueue_trial(chosen.defaults)
    wanted = trials if chosen.defaults else 1
    actual = validation.actual()
    done: list[Trial] = []
    best: tuple[Metrics, Params, OutOfFold] | None = None
    began = time.monotonic()
    while len(done) < wanted and (not done or time.monotonic() - began < budget_s):
        asked = study.ask()
        params = chosen.suggest(asked)
        begun = time.monotonic()
        predicted = _validate_or_prune(asked, validation, name, params, actual)
        took_s = time.monotonic() - begun
        if predicted is None:
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            done.append(Trial(asked.number, params, "pruned", took_s))
        else:
            metrics = error_metrics(validation.table, predicted.logs, validation.targets)
            study.tell(asked, metrics["objective"])
            done.append(Trial(asked.number, params, "complete", took_s, metrics))
            if best is None or metrics["objective"] < best[0]["objective"]:
                best = metrics, params, predicted
        on_trial(done[-1])
    assert best is not None  # noqa: S101  # the first trial is never pruned
    metrics, params, predicted = best
    return Search(name, params, metrics, predicted, tuple(done), len(done) < wanted)


def _validate_or_prune(
    asked: optuna.Trial, validation: Validation, name: str, params: Params, actual: np.ndarray
) -> OutOfFold | None:
    """Return out-of-fold predictions, or None when the first folds show it is not worth it."""
    predicted = OutOfFold(np.full_like(actual, np.nan), np.ones((*actual.shape, 2)))
    seen: list[int] = []
    for step, (held_out, *found) in enumerate(validation.predictions(name, params, "volume")):
        predicted.logs[held_out], predicted.spread[held_out] = found
        seen.extend(held_out)
        asked.report(objective(actual[seen], predicted.logs[seen], validation.targets), step)
        if len(seen) < len(actual) and asked.should_prune():
            return None
    return predicted
