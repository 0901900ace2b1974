"""A regressor of runtimes or memory with scikit-learn's contract, on any table of runs.

Its evaluation is nested. In each outer fold, families are tuned, blended, selected and calibrated
by folds within its training groups alone, and then predict the held-out groups. The metrics of
the selected model describe the procedure, which may select another family in each fold.

Within a time budget a sample of a large table is searched. The selected recipe is then fitted once
more, to as many rows as there is time for: one fit costs far less than the search, and its errors
are smaller. Bounds stay the sample's, which are wider.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from voxcast.errors import TableError, VoxcastError, one_line
from voxcast.features.any_table import choose_columns, is_censored, learnable, statuses
from voxcast.features.rows import rows_of
from voxcast.features.screening import screened
from voxcast.files import atomic_folder
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import family
from voxcast.models.forecaster import Forecaster
from voxcast.models.metrics import scores, under_requests
from voxcast.models.point_model import ROUNDS, queries_of
from voxcast.models.selection import fitting
from voxcast.models.selection.fitting import fit_calibrated, fit_trend
from voxcast.models.selection.leaderboard import GRID
from voxcast.models.selection.learning import learn
from voxcast.models.table_model import (
    TARGET,
    TableModel,
    configurations_of,
    novelty_of,
    validation_of,
)
from voxcast.quantities import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from numpy.typing import ArrayLike
    from sklearn.utils import Tags

    from voxcast.features.any_table import Columns
    from voxcast.models.families.family import Params
    from voxcast.models.point_model import PointModel
    from voxcast.models.selection.cross_validation import Validation
    from voxcast.models.selection.leaderboard import Leaderboard


MIN_ROWS = 4  # two folds of two groups
MOST_TRIALS = 50  # of a family; a time budget ends them earlier

logger = logging.getLogger(__name__)


class RuntimeRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Predict the runtime or memory of a run, with an upper bound that holds with a probability.

    Families of models are tuned and blended by cross-validation over whole groups, the best one
    is fitted to all rows, and its bound is calibrated on errors out of fold (split conformal
    prediction). Rows out of the range of the training rows continue a trend, if the outermost
    training rows show one.

    Parameters
    ----------
    families : sequence of str, optional
        Families of models to try; by default `FAMILIES`.
    trials : int
        Trials of parameters for each family.
    time_budget_s : float, optional
        Total time in seconds; without a limit by default, and then the result is reproducible.
    quantile : float
        Probability of the upper bound, above 0.5 and below 1.
    evaluate : bool
        Whether to estimate the errors of the procedure on held-out groups by nested
        cross-validation, which takes three times as long.
    random_state : int
        Seed of folds and models.

    Attributes
    ----------
    model_ : voxcast.models.table_model.TableModel
        The fitted model; it can be saved.
    family_ : str
        The selected family or blend.
    metrics_ : dict of str to float
        Errors on held-out groups, with ``evaluate``.
    cv_results_ : DataFrame
        The same metrics for each candidate, with ``evaluate``.
    rows_, groups_, trials_ : int
        Rows and groups that were searched, and number of trials.
    novelty_ : {"groups", "configurations", "runs"}
        In which sense the rows of the metrics are new.
    deterministic_ : bool
        Whether no search stopped at the time budget.

    References
    ----------
    Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, "Distribution-free predictive inference for
    regression", JASA 113, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> size = np.arange(1.0, 61.0)
    >>> regressor = RuntimeRegressor(families=("ridge",), trials=1)
    >>> bool(abs(regressor.fit(size[:, None], 3 * size).predict([[30.0]])[0] - 90) < 9)
    True
    """

    def __init__(
        self,
        families: Sequence[str] | None = None,
        trials: int = 8,
        time_budget_s: float | None = None,
        quantile: float = 0.9,
        evaluate: bool = False,
        random_state: int = 0,
    ) -> None:
        self.families = families
        self.trials = trials
        self.time_budget_s = time_budget_s
        self.quantile = quantile
        self.evaluate = evaluate
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of accepted input: texts, missing values, and targets above 0."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.positive_only = True
        return tags

    def fit(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        censored: ArrayLike | None = None,
        machine: ArrayLike | None = None,
        sitting: ArrayLike | None = None,
    ) -> RuntimeRegressor:
        """Fit the best family to all rows.

        Parameters
        ----------
        X : DataFrame or array, shape (n_rows, n_features)
            Numbers and texts; missing values are allowed.
        y : array, shape (n_rows,)
            Runtimes or amounts of memory, above 0.
        groups : array, shape (n_rows,), optional
            Rows of a group, such as a subject, are never split by a fold.
        censored : array of bool, shape (n_rows,), optional
            Rows of runs that were stopped before they completed, so that ``y`` is a lower bound.
        machine : array of str, shape (n_rows,), optional
            Where each run was made: the speeds of machines are then estimated with the times.
        sitting : array of str, shape (n_rows,), optional
            Name of a stretch of time in which the speed of a machine stayed the same, such as a
            date; without it, its speed never changes.

        Raises
        ------
        ValueError
            If shapes or values do not fit.
        """
        features = self._frame(X, y, reset=True)
        target = column_or_1d(y, warn=True, dtype=float)
        check_consistent_length(features, target, groups, censored, machine, sitting)
        stopped = np.zeros(len(target), bool) if censored is None else np.asarray(censored, bool)
        _check_labels(target, stopped)
        if (count := int((~stopped).sum())) < MIN_ROWS:
            raise ValueError(f"n_samples={count}, but at least {MIN_ROWS} are needed")
        name = _free(TARGET, features)
        table = features.assign(**{name: target})
        roles: dict[str, str] = {}
        columns_by_role = {"group": groups, "machine": machine, "sitting": sitting}
        for role, values in columns_by_role.items():
            if values is not None:
                roles[role] = _free(role, table)
                table[roles[role]] = _names(values, len(table))
        if not (self.trials >= 1 and 0.5 < self.quantile < 1):
            raise ValueError("trials must be at least 1, and quantile above 0.5 and below 1")
        with _value_errors():
            columns = choose_columns(table, name, **roles)
            return self._fit_rows(table[~stopped], columns, table[stopped])

    def _fit_rows(
        self,
        table: pd.DataFrame,
        columns: Columns,
        censored: pd.DataFrame | None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> RuntimeRegressor:
        started = time.monotonic()
        budget_s = math.inf if self.time_budget_s is None else self.time_budget_s
        families: Sequence[str] = self.families or FAMILIES
        all_rows = validation_of(table, columns, self.random_state, censored)
        validation = affordable(all_rows, budget_s)
        metrics: dict[str, dict[str, Any]] = {CHOSEN: {}}
        cut_short = False
        if self.evaluate:
            end = started + EVALUATION_SHARE * budget_s
            metrics, families, cut_short = _evaluated(
                validation, families, columns, self, end, on_step
            )
        model, leaderboard = fit_on_all(
            validation, columns, families, quantile=self.quantile, trials=self.trials,
            budget_s=started + LEARNING_SHARE * budget_s - time.monotonic(), on_step=on_step,
        )  # fmt: skip
        self.family_, self.trials_ = leaderboard.best, leaderboard.trials
        self.rows_ = len(validation.table)
        self.groups_ = int(validation.table["subject"].nunique())
        self.novelty_ = novelty_of(table, columns)
        self.deterministic_ = not (cut_short or leaderboard.cut_short)
        if self.rows_ < len(all_rows.table):
            params, end = leaderboard.params[self.family_], started + budget_s
            model = refitted(model, all_rows, params, self.rows_, end)
        self.metrics_ = metrics.pop(CHOSEN)
        self.cv_results_ = pd.DataFrame(metrics).T.rename_axis("candidate")
        # Where the bound is about new runs of the same configurations, it is of these alone.
        bound_to = configurations_of(table, columns) if self.novelty_ == "runs" else np.array([])
        self.model_ = replace(model, configurations=tuple(np.unique(bound_to).tolist()))
        return self

    def predict(
        self,
        X: ArrayLike | pd.DataFrame,
        machine: str | ArrayLike | None = None,
        sitting: str | ArrayLike | None = None,
    ) -> np.ndarray:
        """Return the medians, shape (n_rows,); see `predict_interval`."""
        answers = self.predict_interval(X, machine=machine, sitting=sitting)
        return answers["prediction"].to_numpy()

    def predict_interval(
        self,
        X: ArrayLike | pd.DataFrame,
        quantile: float | None = None,
        machine: str | ArrayLike | None = None,
        sitting: str | ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Return the medians and upper bounds, and why a bound does not hold.

        Parameters
        ----------
        X : DataFrame or array, shape (n_rows, n_features)
            As in `fit`.
        quantile : float, optional
            Probability of the upper bounds; by default the regressor's.
        machine, sitting : str or array of str, shape (n_rows,), optional
            Where and when the runs will be made, see `fit`. What is not known of the speed of a
            machine or of a sitting widens the bounds.

        Returns
        -------
        DataFrame
            See `voxcast.models.table_model.TableModel.predict`.
        """
        check_is_fitted(self)
        model = self.model_ if quantile is None else replace(self.model_, quantile=quantile)
        table = self._frame(X, reset=False)
        columns = model.columns
        for role, values in ((columns.machine, machine), (columns.sitting, sitting)):
            if values is not None:
                if role is None:
                    raise ValueError("the regressor was fitted without machines or sittings")
                table[role] = _names(values, len(table))
        with _value_errors():
            return model.predict(table)

    def updated(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        *,
        machine: str,
        sitting: str,
        groups: ArrayLike | None = None,
    ) -> RuntimeRegressor:
        """Return a copy that knows the speed of a machine from some runs on it.

        One or two runs tell how fast a sitting is, three on a new machine make its bound
        calibrated; nothing is fitted again.

        Parameters
        ----------
        X, y, groups
            Completed runs that the regressor did not learn from, see `fit`.
        machine, sitting : str
            Of all these runs; the sitting is a new one.

        Raises
        ------
        ValueError
            If the regressor was fitted without machines, knows the sitting already, or no run is
            in its range.
        """
        check_is_fitted(self)
        columns = self.model_.columns
        table = self._frame(X, reset=False)
        target = column_or_1d(y, dtype=float)
        check_consistent_length(table, target, groups)
        _check_labels(target, np.zeros(len(target), bool))
        table[columns.target] = target
        if columns.group is not None:
            subjects = np.arange(len(table)) if groups is None else np.asarray(groups)
            table[columns.group] = subjects
        other = copy(self)
        with _value_errors():
            other.model_ = self.model_.updated(table, machine, sitting)
        return other

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the model into a new folder, for ``voxcast predict --model``."""
        check_is_fitted(self)
        with atomic_folder(Path(folder)) as partial:
            self.model_.save(partial)

    def _frame(self, X: Any, y: Any = "no_validation", *, reset: bool) -> pd.DataFrame:
        """Return features as a table; an array gets the names x0, x1 and so on."""
        least = 2 if reset else 1
        if not isinstance(X, pd.DataFrame):
            values = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=least)
            validate_data(self, values, y, reset=reset, skip_check_array=True)
            names = [f"x{n}" for n in range(values.shape[1])]
            return pd.DataFrame(values, columns=names).infer_objects()
        check_array(np.zeros(X.shape), ensure_min_samples=least)
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        return X.reset_index(drop=True).set_axis(X.columns.astype(str), axis=1)


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise refusals as `ValueError`, as scikit-learn has it."""
    try:
        yield
    except VoxcastError as error:
        raise ValueError(one_line(error)) from error


def _check_labels(labels: np.ndarray, stopped: np.ndarray) -> None:
    if not (labels[~stopped] > 0).all() or not np.isfinite(labels).all():
        raise ValueError("y must hold finite numbers above 0, without NaN or infinity")


def _names(values: Any, count: int) -> list[str]:
    """Return one name for each row as text, empty where it is missing."""
    listed = [values] * count if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    if len(listed) != count:
        raise ValueError(f"{len(listed)} names for {count} rows")
    return ["" if pd.isna(value) else str(value) for value in listed]


def _free(name: str, table: pd.DataFrame) -> str:
    while name in table:
        name += "_"
    return name


def fit(
    table: pd.DataFrame,
    target: str,
    *,
    groups: str | None = None,
    machine: str | None = None,
    sitting: str | None = None,
    exclude: Sequence[str] = (),
    keep: Sequence[str] = (),
    keep_failed: bool = False,
    strict: bool = False,
    quantile: float = 0.9,
    trials: int | None = None,
    time_budget: float | str | None = "5min",
    random_state: int = 0,
    on_step: Callable[[str], None] = lambda step: None,
) -> RuntimeRegressor:
    """Learn a column of a table of runs, and estimate the errors on groups not seen before.

    Columns that are known only after a run are left out by their names. Runs that did not complete
    are lower bounds, see `voxcast.features.any_table`.

    Parameters
    ----------
    table : DataFrame
        A row for each run.
    target : str
        Column to predict, such as ``runtime_s``.
    groups : str, optional
        Column of groups that are never split, such as the subject.
    machine, sitting : str, optional
        Columns of where and when each run was made, see `RuntimeRegressor.fit`.
    exclude, keep : sequence of str
        Columns that are not features, and columns to use regardless of their names.
    keep_failed : bool
        Whether to use runs that did not complete as if they had.
    strict : bool
        Whether to refuse columns that rank the rows as the target does, and are not in ``keep``.
    quantile : float
        Probability of the upper bound.
    trials : int, optional
        Trials for each family, without a time budget: reproducible.
    time_budget : float or str
        Total time, in seconds or as a text such as ``"5min"``.
    random_state : int
        Seed of folds and models.
    on_step : callable
        Called with the name of the next step.

    Returns
    -------
    RuntimeRegressor
        Also with ``screening_``, what became of the columns, and ``left_out_``, the numbers of
        the rows without a label by reason.

    Raises
    ------
    TableError
        If a column or a label is missing, or by ``strict``.

    Examples
    --------
    >>> import pandas as pd, voxcast
    >>> runs = pd.DataFrame({"size": range(1, 41), "seconds": range(3, 123, 3)})
    >>> model = voxcast.fit(runs, "seconds", trials=1)  # doctest: +SKIP
    >>> model.predict_interval(runs[["size"]].head(2))  # doctest: +SKIP
    """
    started = time.monotonic()
    columns = choose_columns(table, target, groups, exclude, machine, sitting)
    usable, left_out = learnable(table, columns, keep_failed=keep_failed)
    censored = None
    if not keep_failed:
        censored = table[is_censored(statuses(table, (target, groups)))]
    screening = screened(table[usable], columns, keep)
    if screening.close and strict:
        raise TableError(
            "; ".join(f"{name} {reason}" for name, reason in screening.close.items()),
            target, f"--keep or --exclude {' '.join(screening.close)}",
        )  # fmt: skip
    for reason, rows in left_out.items():
        examples = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        logger.info("%d rows excluded, %s: %s", len(rows), reason, examples)
    budget_s = None
    if trials is None and time_budget is not None:
        total_s = parse_seconds(time_budget) if isinstance(time_budget, str) else time_budget
        budget_s = total_s - (time.monotonic() - started)
    regressor = RuntimeRegressor(
        trials=trials or MOST_TRIALS, time_budget_s=budget_s, quantile=quantile, evaluate=True,
        random_state=random_state,
    )  # fmt: skip
    used = [*screening.columns.numbers, *screening.columns.texts]
    validate_data(regressor, table[used], skip_check_array=True)
    regressor._fit_rows(table[usable], screening.columns, censored, on_step)
    regressor.screening_, regressor.left_out_ = screening, left_out
    if regressor.rows_ < usable.sum():
        logger.info("searched a sample of %d of %d rows", regressor.rows_, usable.sum())
    return regressor


FAMILIES = ("median", "ridge", "boosted", "extra_trees", "mlp", "gaussian_process")
OUTER = 3
# Shares of the time: for the evaluation, and for it and the search on all rows.
EVALUATION_SHARE, LEARNING_SHARE = 0.7, 0.85
# Numbers of a matrix that all families learn from in a second, in every fit of the evaluation and
# the search for one trial each. More rows are not searched within a time budget.
NUMBERS_PER_S, LEAST_ROWS = 2500.0, 500
FACTOR = 1.5  # see `voxcast.models.conformal`
CHOSEN = "chosen"


def fit_on_all(
    validation: Validation,
    columns: Columns,
    families: Sequence[str] = FAMILIES,
    *,
    quantile: float = 0.9,
    trials: int = 8,
    budget_s: float = math.inf,
    on_step: Callable[[str], None] = lambda step: None,
) -> tuple[TableModel, Leaderboard]:
    """Return the best model of all rows, without an evaluation, and the leaderboard.

    Parameters
    ----------
    validation : Validation
        See `voxcast.models.table_model.validation_of`.
    """
    leaderboard = learn(
        validation, families, trials=trials, budget_s=budget_s, input_levels=("header",),
        on_family=partial(_report, on_step, "all rows: "),
    )  # fmt: skip
    ((_, forecaster),) = _fitted(validation, leaderboard, [leaderboard.best], columns)
    return TableModel(columns, quantile, forecaster), leaderboard


def _evaluated(
    validation: Validation,
    families: Sequence[str],
    columns: Columns,
    regressor: RuntimeRegressor,
    end: float,
    on_step: Callable[[str], None],
) -> tuple[dict[str, dict[str, Any]], Sequence[str], bool]:
    """Return the metrics of every candidate on held-out groups, by folds around the procedure.

    Returns
    -------
    metrics : dict of str to dict
        Of the candidates of all folds.
    families : sequence of str
        Those that there was time for in every fold.
    cut_short : bool
        Whether a search stopped at the time budget.
    """
    outer = replace(validation, n_folds=OUTER, seed=validation.seed + 1).folds()
    answers: dict[str, list[pd.DataFrame]] = {}
    cut_short = False
    for number, (train, held_out) in enumerate(outer):
        inner, fold = validation.part(train), f"fold {number + 1} of {len(outer)}: "
        leaderboard = learn(
            inner, families, trials=regressor.trials,
            budget_s=(end - time.monotonic()) / (len(outer) - number), input_levels=("header",),
            on_family=partial(_report, on_step, fold),
        )  # fmt: skip
        cut_short |= leaderboard.cut_short
        families = [name for name in families if name in leaderboard.tuned]
        queries = queries_of(validation.table.iloc[held_out])
        for name, forecaster in _fitted(inner, leaderboard, list(leaderboard.params), columns):
            predictions = forecaster.predict(
                queries, lower_quantile=1 - regressor.quantile, upper_quantile=regressor.quantile
            )
            rows = [(*p.quantiles[TARGET], p.calibrated) for p in predictions]
            frame = pd.DataFrame(rows, held_out, ["lower", "median", "upper", "calibrated"])
            names = {GRID: leaderboard.best_family, CHOSEN: leaderboard.best}
            for candidate in (name, *(alias for alias, of in names.items() if of == name)):
                answers.setdefault(candidate, []).append(frame)
    metrics = {
        name: _held_out_metrics(validation.table, pd.concat(parts))
        for name, parts in answers.items()
        if len(parts) == len(outer)
    }
    return metrics, families, cut_short


def _report(on_step: Callable[[str], None], stage: str, family_name: str) -> None:
    on_step(f"{stage}{family_name}")


def _held_out_metrics(table: pd.DataFrame, answers: pd.DataFrame) -> dict[str, Any]:
    """Return the metrics of the predictions of held-out rows, of all folds together."""
    runs = table.iloc[answers.index]
    actual, upper = runs[TARGET].to_numpy(), answers["upper"].to_numpy()
    exceeded, groups, interval = under_requests(actual, upper, runs["subject"])
    return {
        "mae": float(np.abs(answers["median"].to_numpy() - actual).mean()),
        **scores(actual, answers["median"]),
        "coverage": float((actual <= upper).mean()),
        "groups_above": exceeded / groups,
        "groups_above_interval": list(interval),
        "asked_over_used": float(upper.sum() / actual.sum()),
        "calibrated": float(answers["calibrated"].mean()),
    }


def _fitted(
    validation: Validation, leaderboard: Leaderboard, names: Sequence[str], columns: Columns
) -> Iterator[tuple[str, Forecaster]]:
    """Yield the forecasters of candidates; all continue the same trend, none is fitted twice."""
    trend = fit_trend(validation, leaderboard, columns)
    fitted: dict[str, PointModel] = {}
    for name in names:
        model = fit_calibrated(validation, leaderboard, name, FACTOR, fitted=fitted)
        yield name, Forecaster({"header": replace(model, trend=trend, columns=columns)})


def affordable(validation: Validation, budget_s: float) -> Validation:
    """Return the rows that can be searched within a time budget."""
    if math.isinf(budget_s):
        return validation
    rows = rows_of(validation.table.head(LEAST_ROWS))
    width = len(Encoder.fit(rows, content=True).columns)
    fits = 1 if validation.stopped is None else 1 + ROUNDS
    return validation.sampled(max(LEAST_ROWS, int(NUMBERS_PER_S * budget_s / width / fits)))


def refitted(
    model: TableModel, all_rows: Validation, params: Params, searched: int, end: float
) -> TableModel:
    """Return the model fitted to as many rows as there is time for, if these are more.

    Parameters
    ----------
    searched : int
        Rows that the model learned from.
    end : float
        When the time is over, by the monotonic clock.
    """
    calibrated = model.forecaster.model_at("header")
    name = calibrated.model.family
    members = params["members"] if fitting.is_blend(params) else {name: params}
    started = time.monotonic()
    fitting.fit(all_rows.sampled(searched), name, params, "header")
    fit_s = time.monotonic() - started
    rows = int(min(len(all_rows.table), searched * (end - started) / (3 * fit_s)))
    rows = min([rows, *(limit for m in members if (limit := family(m).max_rows) is not None)])
    if rows <= searched:
        return model
    logger.info("the last fit is of %d rows", rows)
    point = fitting.fit(all_rows.sampled(rows), name, params, "header")
    return replace(model, forecaster=Forecaster({"header": replace(calibrated, model=point)}))
