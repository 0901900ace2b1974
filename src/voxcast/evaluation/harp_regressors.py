"""The inputs of HARP's regressors: columns as numbers, standardised, principal components.

HARP's three regressors: linear (MLR), decision tree (DTR) and a small network (NNR).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


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
