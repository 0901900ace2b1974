"""Learning: every family is tuned, ensembles are built, and all are evaluated on the same folds.

Parameters are tuned with Optuna, by cross-validation grouped by subject.

The selection uses folds within the runs, so its evaluation needs other, held-out runs.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from voxcast.features.phase_labels import labels_of
from voxcast.models.families.family import Params, family
from voxcast.models.metrics import Metrics, error_metrics, objective, run_errors
from voxcast.models.point_model import blend_params, weighted_mean
from voxcast.models.selection.leaderboard import (
    STACKED,
    VOTING,
    Leaderboard,
    Search,
    Trial,
    TrialCounts,
    choose_family,
    stacked_out_of_fold,
    stacked_weights,
    voting_weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import optuna

    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation


def tune(
    validation: Validation,
    name: str,
    *,
    trials: int,
    budget_s: float,
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
        No trial starts that would end after this time if it took as long as the longest so far,
        except the first.
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
        out_of_fold = _validate_or_prune(trial, validation, name, params, input_level)
        duration_s = time.monotonic() - trial_started
        longest_s = max(longest_s, duration_s)
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


BASELINE = "median"  # can be fitted to any table
ALWAYS = "ridge"  # fast, so that there is a model beside the baselines within any budget

logger = logging.getLogger(__name__)


def learn(
    validation: Validation,
    families: Sequence[str],
    *,
    trials: int,
    budget_s: float = math.inf,
    input_levels: Sequence[InputLevel] = ("volume",),
    fixed_params: Mapping[str, Params] | None = None,
    on_family: Callable[[str], None] = lambda name: None,
    on_search: Callable[[Search], None] = lambda search: None,
) -> Leaderboard:
    """Tune every family that the table allows, and blend them.

    Parameters
    ----------
    families : sequence of str
        Names of families. To the runs of one subject only baselines are fitted: what differs
        between subjects cannot be learned from them.
    trials : int
        Maximum number of trials per family.
    budget_s : float
        Total time. The rest of a family's share goes to the next ones. None starts after
        this time, except baselines and `ALWAYS`.
    input_levels : sequence of {"header", "volume"}
        Families are tuned at the first and evaluated with the same parameters at the other levels.
    fixed_params : mapping, optional
        Parameters of families that are not tuned.
    on_family, on_search : callable
        Called with a family's name before its search, and with the search when it is over.
    """
    fixed = fixed_params or {}
    searches = {}
    names = allowed_families(families, validation)
    deadline = time.monotonic() + budget_s
    for n, name in enumerate(names):
        left_s = deadline - time.monotonic()
        if left_s <= 0 and not (family(name).baseline or name == ALWAYS or name in fixed):
            logger.info("%s: left out, the time is over", name)
            continue
        on_family(name)
        if name in fixed:
            out_of_fold = validation.out_of_fold(name, fixed[name], input_levels[0])
            search = Search(name, fixed[name], _metrics(validation, out_of_fold), out_of_fold)
        else:
            share_s = left_s / (len(names) - n)
            search = tune(
                validation, name, trials=trials, budget_s=share_s, input_level=input_levels[0]
            )
        searches[name] = search
        on_search(search)
    return _leaderboard(validation, searches, input_levels)


def allowed_families(families: Sequence[str], validation: Validation) -> list[str]:
    """Return the families that the table allows; ``median`` if it allows none of them."""
    n_rows = len(validation.table)
    names = [name for name in families if n_rows <= (family(name).max_rows or n_rows)]
    if labels_of(validation.table) is None and any(family(name).needs_phases for name in names):
        names = [name for name in names if not family(name).needs_phases]
        if _is_of_app(validation):
            logger.info(
                "%s: no model by phase: CPU times by phase are not on record, or the application "
                "declares no phase_drivers", _title(validation),
            )  # fmt: skip
    if validation.has_one_subject:
        unit, runs = ("subject", "runs") if _is_of_app(validation) else ("group", "rows")
        logger.warning(
            "%s: one %s, so only baselines are fitted; their errors are over its own %s "
            "and say nothing of other %ss",
            _title(validation), unit, runs, unit,
        )  # fmt: skip
        names = [name for name in names if family(name).baseline]
    return names or [BASELINE]


def _leaderboard(
    validation: Validation, searches: dict[str, Search], input_levels: Sequence[InputLevel]
) -> Leaderboard:
    """Add the ensembles and the other input levels."""
    params = {name: search.params for name, search in searches.items()}
    out_of_fold = {name: search.out_of_fold for name, search in searches.items()}
    ensemble_params, ensembles = _ensembles(validation, params, out_of_fold)
    tuned_level = input_levels[0]
    by_level = {tuned_level: out_of_fold | ensembles}
    for input_level in input_levels[1:]:
        by_level[input_level] = {
            name: validation.out_of_fold(name, family_params, input_level)
            for name, family_params in params.items()
            if not family(name).needs_volume
        }
    metrics = {
        input_level: {
            name: _metrics(validation, predictions) for name, predictions in by_name.items()
        }
        for input_level, by_name in by_level.items()
    }
    counts = {
        name: TrialCounts(
            len(search.trials),
            sum(trial.state == "pruned" for trial in search.trials),
            search.cut_short,
        )
        for name, search in searches.items()
    }
    chosen = {level: _chosen(validation, by_name, level) for level, by_name in by_level.items()}
    return Leaderboard(tuned_level, params | ensemble_params, metrics, by_level, counts, chosen)


def _chosen(
    validation: Validation, out_of_fold: Mapping[str, np.ndarray], input_level: InputLevel
) -> str:
    """Choose a family or an ensemble, and say so where it has not the smallest error."""
    actual = validation.actual_at_usual_speed()
    subjects = validation.table["subject"].tolist()
    choice = choose_family(
        {
            name: run_errors(actual, predictions, validation.targets)
            for name, predictions in out_of_fold.items()
        },
        subjects,
    )
    if choice.name != choice.smallest:
        source, unit = (
            (f" from the {input_level}", "subjects") if _is_of_app(validation) else ("", "groups")
        )
        logger.warning(
            "%s: %s is chosen%s; the smaller error of %s on %d %s may be chance",
            _title(validation), choice.name, source, choice.smallest, len(set(subjects)), unit,
        )  # fmt: skip
    return choice.name


def _title(validation: Validation) -> str:
    return str(validation.table["app"].iloc[0]) if _is_of_app(validation) else "the table"


def _is_of_app(validation: Validation) -> bool:
    """Whether the runs are of an application's images, and not the rows of any table."""
    return "app" in validation.table


def _ensembles(
    validation: Validation, params: Mapping[str, Params], out_of_fold: Mapping[str, np.ndarray]
) -> tuple[dict[str, Params], dict[str, np.ndarray]]:
    """Return recipes and out-of-fold predictions of the ensembles; nothing is fitted."""
    if sum(not family(name).baseline for name in out_of_fold) < 2:
        return {}, {}
    actual, targets = validation.actual_at_usual_speed(), validation.targets
    voting = voting_weights(out_of_fold, actual, targets)
    stacked = stacked_weights(out_of_fold, actual, targets)
    return (
        {VOTING: blend_params(params, voting), STACKED: blend_params(params, stacked)},
        {
            VOTING: weighted_mean(out_of_fold, voting),
            STACKED: stacked_out_of_fold(out_of_fold, actual, targets, validation.folds()),
        },
    )


def _metrics(validation: Validation, out_of_fold: np.ndarray) -> Metrics:
    return error_metrics(validation.table, out_of_fold, validation.targets)
