"""Tuning of a family's parameters with Optuna, by cross-validation grouped by subject."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from voxcast.models.families.family import Params, family
from voxcast.models.fit_times import TimeUpError, time_limit
from voxcast.models.metrics import Metrics, error_metrics, objective

if TYPE_CHECKING:
    import numpy as np
    import optuna

    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation


@dataclass(frozen=True)
class Trial:
    """One trial of a set of parameters; ``metrics`` is empty if it was pruned."""

    number: int
    params: Params
    state: str
    duration_s: float
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Search:
    """The result of tuning one family.

    Attributes
    ----------
    out_of_fold : ndarray, shape (n_runs, targets)
        Logarithms predicted by the best trial.
    cut_short : bool
        Whether it stopped at the time budget, so that its result depends on the machine.
    """

    family: str
    params: Params
    metrics: Metrics
    out_of_fold: np.ndarray
    trials: tuple[Trial, ...] = ()
    cut_short: bool = False


def tune(
    validation: Validation,
    name: str,
    *,
    trials: int,
    budget_s: float,
    limit_s: float = math.inf,
    must_finish: bool = False,
    input_level: InputLevel = "volume",
) -> Search:
    """Search a family's parameters on the training side.

    Parameters
    ----------
    validation : Validation
        Training runs; all families use the same folds.
    name : str
        Family.
    trials : int
        Maximum number of trials; a family without parameters gets one.
    budget_s : float
        No trial starts after this time, except the first.
    limit_s : float
        A trial is stopped at this time. If it is finite, no trial starts that would end after
        `budget_s` if it took as long as the longest so far.
    must_finish : bool
        Whether the first trial is never stopped.

    Raises
    ------
    TimeUpError
        If the first trial is stopped.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    model_family = family(name)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=validation.seed, n_startup_trials=4),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
    )
    for first in filter(None, (model_family.defaults, model_family.second)):
        study.enqueue_trial(first)
    maximum = trials if model_family.defaults else 1
    finished: list[Trial] = []
    best: Search | None = None
    started, longest_s = time.monotonic(), 0.0
    while len(finished) < maximum and (
        not finished or time.monotonic() - started + longest_s < budget_s
    ):
        trial = study.ask()
        params = model_family.suggest(trial)
        trial_started = time.monotonic()
        try:
            is_free = must_finish and best is None
            with time_limit(math.inf if is_free else started + limit_s - trial_started):
                out_of_fold = _validate_or_prune(trial, validation, name, params, input_level)
        except TimeUpError:
            if best is None:
                raise
            break
        duration_s = time.monotonic() - trial_started
        longest_s = max(longest_s, duration_s) if math.isfinite(limit_s) else 0.0
        if out_of_fold is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            finished.append(Trial(trial.number, params, "pruned", duration_s))
        else:
            metrics = error_metrics(validation.table, out_of_fold, validation.targets)
            study.tell(trial, metrics["objective"])
            finished.append(Trial(trial.number, params, "complete", duration_s, metrics))
            if best is None or metrics["objective"] < best.metrics["objective"]:
                best = Search(name, params, metrics, out_of_fold)
    assert best is not None  # noqa: S101  # the first trial is never pruned
    return replace(best, trials=tuple(finished), cut_short=len(finished) < maximum)


def _validate_or_prune(
    trial: optuna.Trial,
    validation: Validation,
    name: str,
    params: Params,
    input_level: InputLevel,
) -> np.ndarray | None:
    """Return out-of-fold predictions, or None if the trial was pruned."""
    actual = validation.actual_at_usual_speed()
    out_of_fold = validation.no_predictions()
    rows: list[int] = []
    folds = validation.predictions(name, params, input_level)
    for step, (held_out, predictions) in enumerate(folds):
        out_of_fold[held_out] = predictions
        rows.extend(held_out)
        trial.report(objective(actual[rows], out_of_fold[rows], validation.targets), step)
        if len(rows) < len(actual) and trial.should_prune():
            return None
    return out_of_fold
