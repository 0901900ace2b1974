"""A linear trend, and boosted trees on its residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    import numpy as np

SUBSAMPLE = 0.7  # of the rows, for each tree: trees that differ err less together


class ResidualBoosting(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression, and gradient boosting of its residuals.

    Out of range the trees are constant, so the sum continues the linear trend.

    Parameters
    ----------
    alpha : float
        Penalty of the ridge, on standardised columns.
    n_estimators, learning_rate, max_leaf_nodes, min_samples_leaf, random_state
        Parameters of the boosting.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 6,
        min_samples_leaf: int = 4,
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state

    def fit(self, x: np.ndarray, y: np.ndarray) -> ResidualBoosting:
        """Fit the ridge, then the trees on its residuals."""
        self.line_ = make_pipeline(StandardScaler(), Ridge(alpha=self.alpha)).fit(x, y)
        self.trees_ = GradientBoostingRegressor(
            n_estimators=self.n_estimators,
            learning_rate=self.learning_rate,
            max_depth=None,
            max_leaf_nodes=self.max_leaf_nodes,
            min_samples_leaf=self.min_samples_leaf,
            subsample=SUBSAMPLE if len(x) > 1 else 1.0,
            random_state=self.random_state,
        ).fit(x, y - self.line_.predict(x))
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the sum of both."""
        total: np.ndarray = self.line_.predict(x) + self.trees_.predict(x)
        return total
