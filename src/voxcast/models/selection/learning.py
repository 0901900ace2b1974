"""Learning: every family is tuned, ensembles are built, and all are evaluated on the same folds.

The selection uses folds within the runs, so its evaluation needs other, held-out runs.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

from voxcast.features.phase_labels import labels_of
from voxcast.models.families.family import family
from voxcast.models.fit_times import TimeUpError
from voxcast.models.metrics import error_metrics, run_errors
from voxcast.models.point_model import blend_params, weighted_mean
from voxcast.models.selection.family_choice import (
    choose_family,
    stacked_out_of_fold,
    stacked_weights,
    voting_weights,
)
from voxcast.models.selection.leaderboard import STACKED, VOTING, Leaderboard, TrialCounts
from voxcast.models.selection.search import Search, tune

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from voxcast.models.families.family import Params
    from voxcast.models.metrics import Metrics
    from voxcast.models.point_model import InputLevel
    from voxcast.models.selection.cross_validation import Validation

BASELINE = "median"  # can be fitted to any table
ALWAYS = ("median", "ridge")  # fast, so that there is a model within any budget
STRONG = ("boosted",)  # worth more than the last second of a budget: the other families are weak
OVERRUN = 2.0  # times the time that is left, that the trial of such a family may take
SEARCH_SHARE = 0.6  # of a family's time; a trial is the fit of two tables, and a refit is of one
PATIENCE = 3.0  # times its share that a family's trial may take

logger = logging.getLogger(__name__)


def learn(
    validation: Validation,
    families: Sequence[str],
    *,
    trials: int,
    budget_s: float = float("inf"),
    fit_s: Mapping[str, float] | None = None,
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
        Total time budget. Time that a family does not use is shared by the next ones; each gets
        at least one trial.
    fit_s : mapping of str to float, optional
        Expected seconds of a fit by family. They make the budget hard: shares are in proportion to
        them, the budget includes fitting every family once more, which is not done here, and a
        family whose first trial takes several times its share is left out, unless in `ALWAYS`.
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
    for name, share_s in _shares(names, deadline, fit_s or {}):
        on_family(name)
        if name in fixed:
            search = _untuned(validation, name, fixed[name], input_levels[0])
        else:
            limit_s = math.inf
            if fit_s is not None:
                share_s *= SEARCH_SHARE
                left_s = deadline - time.monotonic()
                limit_s = min(PATIENCE * share_s, left_s / 2)
                if name in STRONG:
                    limit_s = OVERRUN * left_s
            try:
                search = tune(
                    validation, name, trials=trials, budget_s=share_s, limit_s=limit_s,
                    must_finish=name in ALWAYS, input_level=input_levels[0],
                )  # fmt: skip
            except TimeUpError:
                logger.info("%s: left out, a trial takes more than %.3g s", name, limit_s)
                continue
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


def _shares(
    names: Sequence[str], deadline: float, weights: Mapping[str, float]
) -> Iterator[tuple[str, float]]:
    """Yield each family with its share of the remaining time."""
    for n, name in enumerate(names):
        share = weights.get(name, 1.0) / sum(weights.get(later, 1.0) for later in names[n:])
        yield name, (deadline - time.monotonic()) * share


def _untuned(validation: Validation, name: str, params: Params, input_level: InputLevel) -> Search:
    out_of_fold = validation.out_of_fold(name, params, input_level)
    return Search(name, params, _metrics(validation, out_of_fold), out_of_fold)


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
