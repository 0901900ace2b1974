"""HARP: twelve fits give twenty-four candidates; one is selected.

Its three regressors, linear (MLR), decision tree (DTR) and a small network (NNR), learn principal
components of standardised columns from four training sets: scaled-down runs, with an increasing
share of full-scale runs. A candidate is selected by under-prediction first, or by mean error.

There are three modes. ``code`` is the release (ICICLE-ai/harp, tag v2.0) with its documented
defects: scaler and components are fitted with the test rows, nothing is reduced, rows with any
number more than 3 standard deviations from the mean are dropped, candidates are scored on the test
rows, and WTM breaks ties over the whole table. ``paper`` follows the papers. ``corrected`` keeps
the method without the defects: categories are one-hot encoded, times are scaled and never
negative, validation takes whole groups, and no run scores an adjustment factor that it was used
to estimate.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from voxcast.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


VARIANCE = 0.99  # explained by the components (in HARP's papers 40 features become about 10)
OUTLIER_Z = 3.0


class Preprocessor:
    """A transformation fitted on one table and applied to any with the same columns.

    Parameters
    ----------
    one_hot : bool
        A column for each category, all zeros for a new one. HARP numbers the categories instead,
        which imposes an order.
    variance : float or None
        Share of variance that the principal components explain; None keeps all components.
    """

    def __init__(self, *, one_hot: bool, variance: float | None = VARIANCE) -> None:
        self.one_hot = one_hot
        self.variance = variance

    def fit(self, table: pd.DataFrame) -> Preprocessor:
        """Estimate categories, medians, scales and components."""
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        numbers = [name for name in table if _is_number(table[name])]
        self.medians_ = {
            str(n): float(np.nan_to_num(table[n].astype(float).median())) for n in numbers
        }
        self.categories_ = {
            str(name): sorted(table[name].dropna().astype(str).unique())
            for name in table
            if name not in numbers
        }
        matrix = self._matrix(table)
        self.scaler_ = StandardScaler().fit(matrix)
        components = min(matrix.shape) if self.variance is None else self.variance
        self.pca_ = PCA(n_components=components, svd_solver="full", random_state=0)
        self.pca_.fit(self.scaler_.transform(matrix))
        return self

    def transform(self, table: pd.DataFrame) -> np.ndarray:
        """Return the components of each row, shape (n, components)."""
        components: np.ndarray = self.pca_.transform(self.scaler_.transform(self._matrix(table)))
        return components

    def _matrix(self, table: pd.DataFrame) -> np.ndarray:
        columns = [
            table[name].astype(float).fillna(median).to_numpy()
            for name, median in self.medians_.items()
        ]
        for name, categories in self.categories_.items():
            values = table[name].astype(str)
            if self.one_hot:
                columns += [(values == category).to_numpy(dtype=float) for category in categories]
            else:
                numbers = {category: float(n) for n, category in enumerate(categories)}
                columns.append(values.map(numbers).fillna(-1.0).to_numpy())
        return np.column_stack(columns)


def inliers(table: pd.DataFrame) -> np.ndarray:
    """Return a mask of rows without a number 3 standard deviations from its mean.

    HARP's release drops all other columns. Walltime is among the numbers, so long runs and rare
    machines are dropped.
    """
    numbers = table.select_dtypes(["number", "bool"]).astype(float)
    spread = numbers.std(ddof=0).replace(0.0, np.nan)
    z = ((numbers - numbers.mean()) / spread).fillna(0.0)
    inlier: np.ndarray = (z.abs() < OUTLIER_Z).all(axis=1).to_numpy()
    return inlier


def _is_number(column: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column) or is_bool_dtype(column))


EPOCHS, BATCH, LEARNING_RATE = 50, 20, 0.01
FITTED_SHARE = 0.8  # HARP's network holds out the last fifth of its rows for its own validation


def _regressor(name: str) -> Any:
    from sklearn.linear_model import LinearRegression
    from sklearn.neural_network import MLPRegressor
    from sklearn.tree import DecisionTreeRegressor

    if name == "MLR":
        return LinearRegression()
    if name == "DTR":
        return DecisionTreeRegressor(random_state=0)
    return MLPRegressor(
        hidden_layer_sizes=(128, 64),
        alpha=0.0,
        batch_size=BATCH,
        learning_rate_init=LEARNING_RATE,
        max_iter=EPOCHS,
        n_iter_no_change=EPOCHS,
        random_state=0,
    )


REGRESSORS = ("MLR", "DTR", "NNR")


class TimeRegressor:
    """One of `REGRESSORS` on times in seconds.

    Parameters
    ----------
    name : str
        One of `REGRESSORS`.
    scaled : bool
        Fit standardised times, and predict at least half the smallest training time. HARP fits
        seconds, so its predictions can be negative.
    """

    def __init__(self, name: str, *, scaled: bool) -> None:
        self.name = name
        self.scaled = scaled

    def fit(self, x: np.ndarray, times_s: np.ndarray) -> TimeRegressor:
        """Fit components, shape (n, k), to times, shape (n,)."""
        from sklearn.exceptions import ConvergenceWarning

        mean, scale = float(times_s.mean()), float(times_s.std()) or 1.0
        self.mean_, self.scale_ = (mean, scale) if self.scaled else (0.0, 1.0)
        self.floor_ = float(times_s.min()) / 2 if self.scaled else -np.inf
        rows = max(1, int(FITTED_SHARE * len(x))) if self.name == "NNR" else len(x)
        target = (times_s - self.mean_) / self.scale_
        with warnings.catch_warnings():
            # Like HARP's, the network trains for a fixed number of epochs, converged or not.
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            warnings.filterwarnings("ignore", message="Got `batch_size`")
            self.model_ = _regressor(self.name).fit(x[:rows], target[:rows])
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return times in seconds, shape (n,)."""
        times_s: np.ndarray = self.model_.predict(x) * self.scale_ + self.mean_
        bounded_s: np.ndarray = np.maximum(times_s, self.floor_)
        return bounded_s


SEED = 2048  # of HARP's split
FULL_SCALE_ALONE = "FS"
SHARES = {"SD": 0.0, "SD+25%FS": 0.25, "SD+50%FS": 0.5, "SD+75%FS": 0.75}
VALIDATION_SHARE = 0.25


@dataclass(frozen=True)
class Mixes:
    """Positions of runs: training sets by name, and the validation runs, which none contains.

    A position is repeated where a run was drawn repeatedly.
    """

    training: dict[str, np.ndarray]
    validation: np.ndarray


def draw_mixes(
    full_scale: Sequence[bool] | np.ndarray,
    groups: Sequence[str] | None = None,
    *,
    scaled_down: bool = True,
    seed: int = SEED,
) -> Mixes:
    """Draw HARP's four training sets and its validation runs.

    A quarter of the full-scale runs is held out for validation. From the rest, a quarter, half
    and three quarters of all full-scale runs are added to the scaled-down ones: as many runs as
    there are scaled-down ones are drawn from them, with replacement.

    Parameters
    ----------
    full_scale : sequence of bool, shape (n,)
        Whether each run is at full scale; otherwise it is scaled down.
    groups : sequence of str, optional
        Groups that validation does not split; HARP itself holds out single runs.
    scaled_down : bool
        False gives a single training set, `FULL_SCALE_ALONE`, of all full-scale runs that are not
        held out for validation.

    Raises
    ------
    TableError
        If there are fewer than 4 full-scale runs, or groups of them, or no scaled-down run where
        they are used.
    """
    full = np.asarray(full_scale, dtype=bool)
    down_rows, full_rows = np.flatnonzero(~full), np.flatnonzero(full)
    names = full_rows if groups is None else np.asarray(groups, dtype=str)[full_rows]
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(np.unique(names))
    if len(distinct) < 4 or (scaled_down and not len(down_rows)):
        have = f"{len(down_rows)} scaled-down and {len(distinct)} full-scale runs or groups"
        raise TableError(f"HARP needs some scaled-down runs and 4 at full scale, not {have}")
    held_out = distinct[: max(1, round(VALIDATION_SHARE * len(distinct)))]
    validation = np.isin(names, held_out)
    # By group, in the order drawn, so that a larger share contains every smaller one.
    order = {name: n for n, name in enumerate(distinct)}
    pool = sorted(
        full_rows[~validation], key=lambda n: order[names[np.searchsorted(full_rows, n)]]
    )
    if not scaled_down:
        return Mixes({FULL_SCALE_ALONE: np.array(pool, dtype=int)}, full_rows[validation])
    training = {}
    for name, share in SHARES.items():
        chosen = np.array(pool[: round(share * len(full_rows))], dtype=int)
        if len(chosen):
            chosen = rng.choice(chosen, size=len(down_rows), replace=True)
        training[name] = np.concatenate([down_rows, chosen])
    return Mixes(training, full_rows[validation])


SelectionPolicy = Literal["WTM", "MAE"]
DIGITS = 4  # HARP compares rounded percentages


@dataclass(frozen=True)
class HarpCandidate:
    """One of HARP's models: training set, regressor, whether adjusted, and its scores.

    Attributes
    ----------
    factor : float
        Predictions are multiplied by this; 1 without adjustment.
    mae_s, mse_s2 : float
        Mean absolute error and mean squared error.
    mape, upp, up_mape, ov_mape : float
        In percent, see `score`.
    """

    mix: str
    regressor: str
    adjusted: bool
    factor: float
    mae_s: float
    mse_s2: float
    mape: float
    upp: float
    up_mape: float
    ov_mape: float


def score(actual_s: ArrayLike, predicted_s: ArrayLike) -> dict[str, float]:
    """Return HARP's measures, rounded as HARP does.

    UPP is the percentage of under-predicted runs. UP_MAPE and OV_MAPE are the mean percentage
    errors over the under- and the over-predicted runs, 0 where there are none. An exact prediction
    counts as neither.

    References
    ----------
    Vallabhajosyula and Ramnath, "Towards practical, generalizable machine-learning training
    pipelines to build regression models for predicting application resource needs on HPC
    systems", PEARC 2022, doi 10.1145/3491418.3535172.
    """
    a, p = np.asarray(actual_s, dtype=float), np.asarray(predicted_s, dtype=float)
    share = 100 * np.abs(p - a) / a
    under, over = p < a, p > a
    measures = {
        "mae_s": np.abs(p - a).mean(),
        "mse_s2": np.square(p - a).mean(),
        "mape": share.mean(),
        "upp": 100 * under.mean(),
        "up_mape": share[under].mean() if under.any() else 0.0,
        "ov_mape": share[over].mean() if over.any() else 0.0,
    }
    return {name: round(float(value), DIGITS) for name, value in measures.items()}


def adjustment_factor(actual_s: ArrayLike, predicted_s: ArrayLike) -> float:
    """Return HARP's VA: 1 + the mean relative error of the under-predicted, to two digits.

    Examples
    --------
    >>> adjustment_factor([100.0, 100.0, 10.0], [50.0, 100.0, 12.0])
    1.5
    """
    a, p = np.asarray(actual_s, dtype=float), np.asarray(predicted_s, dtype=float)
    under = p < a
    return 1 + round(float((np.abs(a - p)[under] / a[under]).mean()), 2) if under.any() else 1.0


def choose(
    candidates: Sequence[HarpCandidate], policy: SelectionPolicy, *, released_ties: bool = False
) -> HarpCandidate:
    """Return the candidate that a policy prefers, the first of equals.

    Parameters
    ----------
    policy : {"WTM", "MAE"}
        WTM takes the smallest UPP and breaks ties by the smallest OV_MAPE; MAE takes the smallest
        mean absolute error.
    released_ties : bool
        Break ties of WTM as HARP's release does, by the smallest OV_MAPE of all candidates. It
        is 0 for a model that under-predicts all runs, which then wins.
    """
    if policy == "MAE":
        return min(candidates, key=lambda candidate: candidate.mae_s)
    least_upp = min(candidate.upp for candidate in candidates)
    tied = [candidate for candidate in candidates if candidate.upp == least_upp]
    pool = candidates if released_ties and len(tied) > 1 else tied
    return min(pool, key=lambda candidate: candidate.ov_mape)


Mode = Literal["paper", "code", "corrected"]


@dataclass(frozen=True)
class Harp:
    """All candidates with their scores and fits; see `fit`."""

    mode: Mode
    candidates: tuple[HarpCandidate, ...]
    fits: dict[tuple[str, str], tuple[Preprocessor, TimeRegressor]]

    def chosen(self, policy: SelectionPolicy = "WTM") -> HarpCandidate:
        """Return the candidate that ``policy`` prefers."""
        return choose(self.candidates, policy, released_ties=self.mode == "code")

    def predict(self, features: pd.DataFrame, candidate: HarpCandidate) -> np.ndarray:
        """Return the times in seconds that a candidate predicts, shape (n,)."""
        preprocessor, regressor = self.fits[candidate.mix, candidate.regressor]
        return regressor.predict(preprocessor.transform(features)) * candidate.factor


def fit(
    features: pd.DataFrame,
    times_s: Sequence[float] | np.ndarray,
    full_scale: Sequence[bool] | np.ndarray,
    *,
    mode: Mode = "corrected",
    groups: Sequence[str] | None = None,
    test: tuple[pd.DataFrame, np.ndarray] | None = None,
    scaled_down: bool = True,
    seed: int = SEED,
) -> Harp:
    """Fit HARP on a history.

    Parameters
    ----------
    features : DataFrame, n rows
        Numbers and categories that are available before a run.
    times_s : sequence of float, shape (n,)
        Wall times, or another positive amount.
    full_scale : sequence of bool, shape (n,)
        Whether each run is at full scale; otherwise it is scaled down.
    groups : sequence of str, optional
        For ``corrected``: groups that validation does not split, such as subjects.
    test : (features, times), optional
        Used by ``code`` only.
    scaled_down : bool
        Whether scaled-down runs are used. Without them HARP's regressors have a single training
        set, all full-scale runs that are not kept for validation.

    Raises
    ------
    TableError
        If there are too few runs, a time is not above zero, or ``code`` lacks the test rows.
    """
    times = np.asarray(times_s, dtype=float)
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise TableError("a time is not above zero", "HARP")
    if mode == "code" and test is None:
        raise TableError(
            "the release needs test rows to score candidates, and there are none", "HARP"
        )
    full = np.asarray(full_scale, dtype=bool)
    if mode == "code":
        inlier = inliers(features.assign(walltime=times, row=np.arange(len(times))))
        features, times, full = features[inlier], times[inlier], full[inlier]
    corrected = mode == "corrected"
    mixes = draw_mixes(full, groups if corrected else None, scaled_down=scaled_down, seed=seed)
    all_rows = None
    if mode == "code" and test is not None:
        all_rows = pd.concat([features, test[0]], ignore_index=True)
    validation_features = features.iloc[mixes.validation]
    validation_s = times[mixes.validation]
    candidates, fits = [], {}
    for name, rows in mixes.training.items():
        preprocessor = Preprocessor(
            one_hot=corrected, variance=None if mode == "code" else VARIANCE
        ).fit(features.iloc[rows] if all_rows is None else all_rows)
        x = preprocessor.transform(features.iloc[rows])
        for regressor in REGRESSORS:
            model = TimeRegressor(regressor, scaled=corrected).fit(x, times[rows])
            fits[name, regressor] = preprocessor, model
            predicted_s = model.predict(preprocessor.transform(validation_features))
            validation_factor = adjustment_factor(validation_s, predicted_s)
            for adjusted in (False, True):
                factor = validation_factor if adjusted else 1.0
                if mode == "code" and test is not None:
                    test_predicted_s = model.predict(preprocessor.transform(test[0]))
                    scores = score(test[1], test_predicted_s * factor)
                elif adjusted and corrected:
                    factors = _leave_one_out_factors(validation_s, predicted_s)
                    scores = score(validation_s, predicted_s * factors)
                else:
                    scores = score(validation_s, predicted_s * factor)
                candidates.append(HarpCandidate(name, regressor, adjusted, factor, **scores))
    return Harp(mode, tuple(candidates), fits)


def _leave_one_out_factors(actual_s: np.ndarray, predicted_s: np.ndarray) -> np.ndarray:
    """Return for each run the adjustment factor of all other runs."""
    positions = np.arange(len(actual_s))
    return np.array(
        [
            adjustment_factor(actual_s[positions != n], predicted_s[positions != n])
            for n in positions
        ]
    )
