"""Tuning: Optuna over a family's parameters, judged by cross-validation grouped by subject."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models import point_model
from voxcast.models.families import Params, family
from voxcast.models.metrics import scores
from voxcast.records import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import optuna
    import pandas as pd

    from voxcast.models.point_model import Level

Metrics = dict[str, float]


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
    out_of_fold : ndarray, shape (n_runs, 3)
        Predicted logarithms of the best trial, each by a model that did not see the subject.
    cut_short : bool
        Whether the clock ended it, so that another machine may find other parameters.
    """

    family: str
    params: Params
    metrics: Metrics
    out_of_fold: np.ndarray
    trials: tuple[Trial, ...]
    cut_short: bool


def folds(table: pd.DataFrame, n_folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (train, held out) positions; a subject is never on both sides of a fold."""
    from sklearn.model_selection import GroupKFold

    subjects = table["subject"].to_numpy()
    count = min(n_folds, len(np.unique(subjects)))
    splitter = GroupKFold(n_splits=count, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros(len(table)), groups=subjects))


def cross_validate(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    level: Level,
    n_folds: int,
    seed: int,
) -> np.ndarray:
    """Return out-of-fold predicted logarithms, shape (n_runs, 3)."""
    predicted = np.full((len(table), len(TARGETS)), np.nan)
    for held_out, logs in _fold_predictions(table, volumes, name, params, level, n_folds, seed):
        predicted[held_out] = logs
    return predicted


def _fold_predictions(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    level: Level,
    n_folds: int,
    seed: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    seen = volumes if family(name).needs_volume else None
    for train, held_out in folds(table, n_folds, seed):
        fitted = point_model.fit(
            table.iloc[train], None if seen is None else seen[train], name, params, level, seed
        )
        yield (
            held_out,
            point_model.predict_table(
                fitted, table.iloc[held_out], None if seen is None else seen[held_out]
            ),
        )


def error_metrics(table: pd.DataFrame, predicted: np.ndarray) -> Metrics:
    """Return ``TARGET/METRIC`` for predicted logarithms, and ``objective``, what tuning minimises.

    The objective is the mean absolute logarithmic error, averaged over CPU time and memory: wall
    time follows from CPU time and carries the machine's noise.
    """
    found: Metrics = {}
    for k, target in enumerate(TARGETS):
        for metric, value in scores(table[target], np.exp(predicted[:, k])).items():
            found[f"{target}/{metric}"] = value
    found["objective"] = (found["cpu_s/log_mae"] + found["peak_rss_bytes/log_mae"]) / 2
    return found


def _objective(actual: np.ndarray, predicted: np.ndarray) -> float:
    errors = np.abs(actual - predicted).mean(axis=0)
    return float((errors[0] + errors[2]) / 2)


def tune(
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    *,
    n_folds: int,
    trials: int,
    budget_s: float,
    seed: int,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> Search:
    """Search a family's parameters on the training side.

    Parameters
    ----------
    table : DataFrame
        Training runs.
    volumes : ndarray or None, shape (n_runs, p, p, p)
        Small volume of each run.
    name : str
        Family.
    n_folds, seed : int
        Of the cross-validation; the same folds serve every family.
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
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=4),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
    )
    if chosen.defaults:
        study.enqueue_trial(chosen.defaults)
    wanted = trials if chosen.defaults else 1
    actual = point_model.actual_logs(table)
    done: list[Trial] = []
    best: tuple[float, Params, np.ndarray] | None = None
    began = time.monotonic()
    while len(done) < wanted and (not done or time.monotonic() - began < budget_s):
        asked = study.ask()
        params = chosen.suggest(asked)
        begun = time.monotonic()
        predicted = _validate_or_prune(asked, table, volumes, name, params, actual, n_folds, seed)
        took_s = time.monotonic() - begun
        if predicted is None:
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            done.append(Trial(asked.number, params, "pruned", took_s))
        else:
            objective = _objective(actual, predicted)
            study.tell(asked, objective)
            metrics = error_metrics(table, predicted)
            done.append(Trial(asked.number, params, "complete", took_s, metrics))
            if best is None or objective < best[0]:
                best = objective, params, predicted
        on_trial(done[-1])
    assert best is not None  # noqa: S101  # the first trial is never pruned
    return Search(
        name, best[1], error_metrics(table, best[2]), best[2], tuple(done), len(done) < wanted
    )


def _validate_or_prune(
    asked: optuna.Trial,
    table: pd.DataFrame,
    volumes: np.ndarray | None,
    name: str,
    params: Params,
    actual: np.ndarray,
    n_folds: int,
    seed: int,
) -> np.ndarray | None:
    """Return out-of-fold predictions, or None when the first folds show it is not worth it."""
    predicted = np.full_like(actual, np.nan)
    seen: list[int] = []
    parts = _fold_predictions(table, volumes, name, params, "volume", n_folds, seed)
    for step, (held_out, logs) in enumerate(parts):
        predicted[held_out] = logs
        seen.extend(held_out)
        asked.report(_objective(actual[seen], predicted[seen]), step)
        if len(seen) < len(table) and asked.should_prune():
            return None
    return predicted
