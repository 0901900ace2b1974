"""A linear trend, and boosted trees on its residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    import numpy as np


class ResidualBoosting(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression, and gradient boosting of its residuals.

    Out of range the trees are constant, so the sum continues the linear trend.

    Parameters
    ----------
    alpha : float
        Penalty of the ridge, on standardised columns.
    max_iter, learning_rate, max_leaf_nodes
        Parameters of the boosting.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        max_iter: int = 100,
        learning_rate: float = 0.05,
        max_leaf_nodes: int = 6,
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.random_state = random_state

    def fit(self, x: np.ndarray, y: np.ndarray) -> ResidualBoosting:
        """Fit the ridge, then the trees on its residuals."""
        self.line_ = make_pipeline(StandardScaler(), Ridge(alpha=self.alpha)).fit(x, y)
        self.trees_ = HistGradientBoostingRegressor(
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            min_samples_leaf=5,
            early_stopping=False,
            random_state=self.random_state,
        ).fit(x, y - self.line_.predict(x))
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the sum of both."""
        total: np.ndarray = self.line_.predict(x) + self.trees_.predict(x)
        return total
