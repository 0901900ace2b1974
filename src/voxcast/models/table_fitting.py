"""All families on any table: evaluated on held-out groups, then fitted on all rows.

The evaluation is nested. In each outer fold, families are tuned, blended, selected and calibrated
by folds within its training groups alone, and then predict the held-out groups. The metrics of
the selected model describe the procedure, which may select another family in each fold.

The selected model of a sample of a table, fitted once more on all rows, if there is time.

One fit of many rows costs far less than the search for the recipe, and its errors are smaller.
Bounds stay the sample's, which are wider.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from voxcast.models.families.family import family
from voxcast.models.fit_times import TimeUpError, measure, time_limit
from voxcast.models.forecaster import Forecaster
from voxcast.models.point_model import ROUNDS
from voxcast.models.query import queries_of
from voxcast.models.selection import recipes
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.leaderboard import GRID
from voxcast.models.selection.learning import ALWAYS, learn
from voxcast.models.selection.refitting import fit_calibrated
from voxcast.models.table_model import TableModel
from voxcast.models.table_validation import (
    TARGET,
    configurations_of,
    held_out_metrics,
    novelty_of,
    sampled,
    validation_of,
)
from voxcast.models.trend import fit_trend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import PointModel
    from voxcast.models.query import Query
    from voxcast.models.selection.leaderboard import Leaderboard
    from voxcast.models.table_validation import HeldOut, Novelty


FAMILIES = ("median", "ridge", "extra_trees", "boosted", "mlp", "gaussian_process")
FIRST = ("median", "ridge", "boosted")  # of a table without time for all
OUTER = 3
FINAL_SHARE = 0.3  # of the time, for the model that is saved
LEARNING_SHARE = 0.85  # of the time; the rest is for the last fits and for saving
LAST_SHARE = 0.7  # of the time then left, for a fit of all rows where a sample was used
# Fits of all rows for one trial of a family: in each outer fold two thirds of the rows twice and
# once more to predict, then all rows twice and once more.
FITS = 9
TIMING_SHARE = 0.15  # of the time, for samples that tell how long fits take
ROWS_SHARE = 0.5  # of the time that is then left, for one trial of the families that are used
FACTOR = 1.5  # see `voxcast.models.conformal`
CHOSEN = "chosen"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FittedTable:
    """A model of a table, and its evaluation.

    Attributes
    ----------
    metrics : dict
        Of the procedure on held-out groups: ``mae mape median_ape upp ov_mape coverage``,
        ``asked_over_used``, and ``calibrated``, the share of rows whose bound was calibrated.
    candidates : dict of str to dict
        The same metrics for every family and ensemble.
    family : str
        Selected on all rows.
    rows, groups : int
        Size of the training table.
    novelty : {"groups", "configurations", "runs"}
        In which sense the rows of the metrics are new.
    trials : int
        Number of trials for the model that is saved.
    deterministic : bool
        Whether no search stopped at the time budget.
    """

    model: TableModel
    metrics: dict[str, float]
    candidates: dict[str, dict[str, float]]
    family: str
    rows: int
    groups: int
    novelty: Novelty
    trials: int
    deterministic: bool


def fit_table(
    table: pd.DataFrame,
    columns: Columns,
    *,
    quantile: float = 0.9,
    trials: int = 8,
    budget_s: float = float("inf"),
    seed: int = 0,
    families: Sequence[str] = FAMILIES,
    censored: pd.DataFrame | None = None,
    evaluate: bool = True,
    on_step: Callable[[str], None] = lambda step: None,
) -> FittedTable:
    """Evaluate all families on a table, and fit the best on all rows.

    Parameters
    ----------
    table : DataFrame
        Rows with a label, see `voxcast.features.any_table.learnable`.
    quantile : float
        Probability of the upper bound.
    trials : int
        Number of trials per family, in each outer fold and for the final model.
    budget_s : float
        Total time for everything. Where it is too short for all rows, a sample of the groups is
        used; families without a trial that ends in its share are left out.
    censored : DataFrame, optional
        Rows that were stopped before they completed, see `voxcast.features.run_status`. Models
        learn from their lower bounds, and they count where bounds are calibrated.
    evaluate : bool
        Whether the procedure is evaluated on held-out groups; otherwise there are none.
    on_step : callable
        Called with the name of the next step.
    """
    started = time.monotonic()
    validation = all_rows = validation_of(table, columns, seed, censored)
    fit_times = None
    if math.isfinite(budget_s):
        ordered = [*(name for name in FIRST if name in families),
                   *(name for name in families if name not in FIRST)]  # fmt: skip
        fit_times = measure(
            validation.table, TARGET, ordered, budget_s=TIMING_SHARE * budget_s, seed=seed
        )
        affordable, rows = fit_times.affordable(
            len(validation.table),
            fits=FITS if validation.stopped is None else FITS * (1 + ROUNDS),
            budget_s=ROWS_SHARE * (started + budget_s - time.monotonic()),
            first=FIRST,
        )
        if too_slow := set(families) - {*affordable, *ALWAYS}:
            logger.info("left out, too slow for the time budget: %s", ", ".join(sorted(too_slow)))
        families = [name for name in families if name not in too_slow]
        validation = sampled(validation, rows)
    fit_s = None if fit_times is None else {
        name: fit_times.of(name, len(validation.table)) for name in fit_times.lines
    }  # fmt: skip
    folds_end = started + budget_s * (1 - FINAL_SHARE)
    metrics: dict[str, dict[str, float]] = {CHOSEN: {}}
    cut_short = False
    if evaluate:
        metrics, families, cut_short = _evaluated(
            validation, families, columns, quantile, trials, folds_end, fit_s, on_step
        )
    model, final = fit_on_all(
        validation, columns, families, quantile=quantile, trials=trials,
        budget_s=started + LEARNING_SHARE * budget_s - time.monotonic(), fit_s=fit_s,
        on_step=on_step,
    )  # fmt: skip
    if len(validation.table) < len(all_rows.table):
        left_s = LAST_SHARE * (started + budget_s - time.monotonic())
        model = refitted(model, all_rows, final.params[final.best], left_s=left_s)
    return FittedTable(
        replace(model, configurations=_bound_to(table, columns)),
        metrics.pop(CHOSEN),
        metrics,
        final.best,
        len(validation.table),
        int(validation.table["subject"].nunique()),
        novelty_of(table, columns),
        final.trials,
        not (cut_short or final.cut_short),
    )


def fit_on_all(
    validation: Validation,
    columns: Columns,
    families: Sequence[str] = FAMILIES,
    *,
    quantile: float = 0.9,
    trials: int = 8,
    budget_s: float = float("inf"),
    fit_s: dict[str, float] | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> tuple[TableModel, Leaderboard]:
    """Return the best model of all rows, without an evaluation, and the leaderboard.

    Parameters
    ----------
    validation : Validation
        See `voxcast.models.table_validation.validation_of`.
    fit_s : dict, optional
        See `voxcast.models.selection.learning.learn`.
    """
    leaderboard = learn(
        validation, families, trials=trials, budget_s=budget_s, fit_s=fit_s,
        input_levels=("header",), on_family=partial(_report, on_step, "all rows"),
    )  # fmt: skip
    ((_, forecaster),) = _fitted(validation, leaderboard, [leaderboard.best], columns)
    return TableModel(columns, quantile, forecaster), leaderboard


def _bound_to(table: pd.DataFrame, columns: Columns) -> tuple[str, ...]:
    """Return the configurations that a bound is about; none if it is about others too."""
    if novelty_of(table, columns) != "runs":
        return ()
    return tuple(np.unique(configurations_of(table, columns)).tolist())


def _evaluated(
    validation: Validation,
    families: Sequence[str],
    columns: Columns,
    quantile: float,
    trials: int,
    end: float,
    fit_s: dict[str, float] | None,
    on_step: Callable[[str], None],
) -> tuple[dict[str, dict[str, float]], Sequence[str], bool]:
    """Return the metrics of every candidate on held-out groups, by folds around the procedure.

    Returns
    -------
    metrics : dict of str to dict
        Of the candidates of all folds: a family that was too slow in one fold is not compared.
    families : sequence of str
        With a model in every fold.
    cut_short : bool
        Whether a search stopped at the time budget.
    """
    outer = Validation(
        validation.table, None, OUTER, validation.seed + 1, validation.targets
    ).folds()
    predictions: dict[str, list[HeldOut]] = {}
    calibrated: dict[str, int] = {}
    cut_short = False
    for number, (train, held_out) in enumerate(outer):
        inner = validation.part(train)
        fold = f"fold {number + 1} of {len(outer)}"
        leaderboard = learn(
            inner, families, trials=trials,
            budget_s=(end - time.monotonic()) / (len(outer) - number),
            fit_s=fit_s, input_levels=("header",), on_family=partial(_report, on_step, fold),
        )  # fmt: skip
        cut_short |= leaderboard.cut_short
        if fit_s is not None:
            families = [name for name in families if name in leaderboard.tuned]
        queries = queries_of(validation.table.iloc[held_out])
        candidates = _candidates(inner, leaderboard, queries, columns, quantile)
        for name, medians, uppers, count in candidates:
            predictions.setdefault(name, []).append((held_out, medians, uppers))
            calibrated[name] = calibrated.get(name, 0) + count
    metrics = {
        name: {
            **held_out_metrics(validation, folds),
            "calibrated": calibrated[name] / len(validation.table),
        }
        for name, folds in predictions.items()
        if len(folds) == len(outer)
    }
    return metrics, families, cut_short


def _report(on_step: Callable[[str], None], stage: str, family: str) -> None:
    on_step(f"{stage}: {family}")


def _candidates(
    inner: Validation,
    leaderboard: Leaderboard,
    queries: Sequence[Query],
    columns: Columns,
    quantile: float,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """Yield medians, upper bounds and how many are calibrated, of all and of the selected one."""
    for name, forecaster in _fitted(inner, leaderboard, list(leaderboard.params), columns):
        predictions = forecaster.predict(
            queries, lower_quantile=1 - quantile, upper_quantile=quantile
        )
        medians, uppers = (np.array([p.quantiles[TARGET][k] for p in predictions]) for k in (1, 2))
        calibrated = sum(p.calibrated for p in predictions)
        yield name, medians, uppers, calibrated
        if name == leaderboard.best_family:
            yield GRID, medians, uppers, calibrated
        if name == leaderboard.best:
            yield CHOSEN, medians, uppers, calibrated


def _fitted(
    validation: Validation, leaderboard: Leaderboard, names: Sequence[str], columns: Columns
) -> Iterator[tuple[str, Forecaster]]:
    """Yield the forecasters of candidates; all continue the same trend, none is fitted twice."""
    trend = fit_trend(validation, leaderboard, columns)
    fitted: dict[str, PointModel] = {}
    for name in names:
        model = fit_calibrated(validation, leaderboard, name, FACTOR, fitted=fitted)
        yield name, Forecaster({"header": replace(model, trend=trend, columns=columns)})


def refitted(
    model: TableModel, all_rows: Validation, params: Params, *, left_s: float
) -> TableModel:
    """Return the model fitted on all rows; if that takes longer, the model as it is.

    Parameters
    ----------
    all_rows : Validation
        All rows; the model has learned a sample of them. Of a family that is not fitted to large
        tables, as many as it takes.
    params : dict
        Parameters of the model, see `voxcast.models.selection.recipes`.
    left_s : float
        Time for the fit.
    """
    calibrated = model.forecaster.model_at("header")
    name = calibrated.model.family
    members = params["members"] if recipes.is_blend(params) else {name: params}
    limits = [limit for member in members if (limit := family(member).max_rows) is not None]
    rows = sampled(all_rows, min([len(all_rows.table), *limits]))
    try:
        with time_limit(left_s):
            point = recipes.fit(rows, name, params, "header")
    except TimeUpError:
        logger.info("the model is of the sample: a fit of all rows takes more than %.3g s", left_s)
        return model
    logger.info("the last fit is of %d rows", len(rows.table))
    return replace(model, forecaster=Forecaster({"header": replace(calibrated, model=point)}))
