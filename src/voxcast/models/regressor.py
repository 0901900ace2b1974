"""A regressor of runtimes or memory with scikit-learn's contract, on any table of runs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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

from voxcast.errors import TableError, one_line
from voxcast.features.any_table import choose_columns, learnable
from voxcast.features.run_status import is_censored, statuses
from voxcast.features.screening import screened
from voxcast.files import atomic_folder
from voxcast.models.table_fitting import FAMILIES, fit_table
from voxcast.quantities import parse_seconds

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike
    from sklearn.utils import Tags

    from voxcast.features.any_table import Columns

TARGET, GROUP = "target", "group"  # names of columns that have none
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
        Families of models to try; by default `voxcast.models.table_fitting.FAMILIES`.
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

        Raises
        ------
        ValueError
            If shapes or values do not fit.
        """
        features = self._frame(X, y, reset=True)
        target = column_or_1d(y, warn=True, dtype=float)
        check_consistent_length(features, target, groups, censored)
        stopped = np.zeros(len(target), bool) if censored is None else np.asarray(censored, bool)
        if not (target[~stopped] > 0).all() or not np.isfinite(target).all():
            raise ValueError("y must hold finite numbers above 0, without NaN or infinity")
        if (count := int((~stopped).sum())) < MIN_ROWS:
            raise ValueError(f"n_samples={count}, but at least {MIN_ROWS} are needed")
        name, group = _free(TARGET, features), None
        table = features.assign(**{name: target})
        if groups is not None:
            group = _free(GROUP, table)
            table[group] = np.asarray(groups).astype(str)
        try:
            columns = choose_columns(table, name, group)
            return self._fit_rows(table[~stopped], columns, table[stopped])
        except TableError as error:
            raise ValueError(one_line(error)) from error

    def _fit_rows(
        self,
        table: pd.DataFrame,
        columns: Columns,
        censored: pd.DataFrame | None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> RuntimeRegressor:
        fitted = fit_table(
            table, columns, quantile=self.quantile, trials=self.trials,
            budget_s=math.inf if self.time_budget_s is None else self.time_budget_s,
            seed=self.random_state, families=self.families or FAMILIES, censored=censored,
            evaluate=self.evaluate, on_step=on_step,
        )  # fmt: skip
        self.fitted_ = fitted
        self.model_, self.family_, self.metrics_ = fitted.model, fitted.family, fitted.metrics
        self.cv_results_ = pd.DataFrame(fitted.candidates).T.rename_axis("candidate")
        return self

    def predict(self, X: ArrayLike | pd.DataFrame) -> np.ndarray:
        """Return the medians, shape (n_rows,)."""
        return self.predict_interval(X)["prediction"].to_numpy()

    def predict_interval(
        self, X: ArrayLike | pd.DataFrame, quantile: float | None = None
    ) -> pd.DataFrame:
        """Return the medians and upper bounds, and why a bound does not hold.

        Parameters
        ----------
        X : DataFrame or array, shape (n_rows, n_features)
            As in `fit`.
        quantile : float, optional
            Probability of the upper bounds; by default the regressor's.

        Returns
        -------
        DataFrame
            See `voxcast.models.table_model.TableModel.predict`.
        """
        check_is_fitted(self)
        model = self.model_ if quantile is None else replace(self.model_, quantile=quantile)
        return model.predict(self._frame(X, reset=False))

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


def _free(name: str, table: pd.DataFrame) -> str:
    while name in table:
        name += "_"
    return name


def fit(
    table: pd.DataFrame,
    target: str,
    *,
    groups: str | None = None,
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
    are lower bounds, see `voxcast.features.run_status`.

    Parameters
    ----------
    table : DataFrame
        A row for each run.
    target : str
        Column to predict, such as ``runtime_s``.
    groups : str, optional
        Column of groups that are never split, such as the subject.
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
    columns = choose_columns(table, target, groups, exclude)
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
    if regressor.fitted_.rows < usable.sum():
        logger.info("trained on a sample of %d of %d rows", regressor.fitted_.rows, usable.sum())
    return regressor
