"""HARP's three regressors: linear (MLR), decision tree (DTR) and a small network (NNR)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS, BATCH, LEARNING_RATE = 50, 20, 0.01
FITTED_SHARE = 0.8  # HARP's network holds out the last fifth of its rows for its own validation


def _linear() -> Any:
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def _tree() -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(random_state=0)


def _network() -> Any:
    from sklearn.neural_network import MLPRegressor

    return MLPRegressor(
        hidden_layer_sizes=(128, 64),
        alpha=0.0,
        batch_size=BATCH,
        learning_rate_init=LEARNING_RATE,
        max_iter=EPOCHS,
        n_iter_no_change=EPOCHS,
        random_state=0,
    )


REGRESSORS: dict[str, Callable[[], Any]] = {"MLR": _linear, "DTR": _tree, "NNR": _network}


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
            self.model_ = REGRESSORS[self.name]().fit(x[:rows], target[:rows])
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return times in seconds, shape (n,)."""
        times_s: np.ndarray = self.model_.predict(x) * self.scale_ + self.mean_
        bounded_s: np.ndarray = np.maximum(times_s, self.floor_)
        return bounded_s
