"""What `voxcast learn` is compared with: plain models of scikit-learn with their usual settings.

Each learns logarithms of the target. Numbers are filled with medians; texts become columns of
zeros and ones, the rarer of more than `LEVELS` together. Lines and neighbours take logarithms of
the positive columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

LEVELS = 60


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(200, random_state=0)


def _extra_trees() -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(200, random_state=0)


def _histogram_boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


def _boosting() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(n_estimators=200, max_depth=4, subsample=0.8, random_state=0)


def _ridge() -> Any:
    from sklearn.linear_model import RidgeCV

    return RidgeCV(np.logspace(-3, 3, 13))


def _neighbours() -> Any:
    from sklearn.neighbors import KNeighborsRegressor

    return KNeighborsRegressor(5, weights="distance")


def _median() -> Any:
    from sklearn.dummy import DummyRegressor

    return DummyRegressor(strategy="median")


# Estimator, and whether it takes logarithms and standardised columns.
PLAIN: dict[str, tuple[Callable[[], Any], bool]] = {
    "random_forest": (_forest, False),
    "extra_trees": (_extra_trees, False),
    "histogram_boosting": (_histogram_boosting, False),
    "gradient_boosting": (_boosting, False),
    "ridge_on_logs": (_ridge, True),
    "nearest_neighbours": (_neighbours, True),
    "median": (_median, False),
}


def plain_predictions(
    train: pd.DataFrame, others: list[pd.DataFrame], target: str, features: list[str]
) -> dict[str, list[np.ndarray]]:
    """Return the predictions of every plain model for the rows of other tables."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    texts = [name for name in features if not pd.api.types.is_numeric_dtype(train[name])]
    numbers = [name for name in features if name not in texts]
    medians = train[numbers].median().fillna(0)
    levels = {name: train[name].value_counts().index[:LEVELS] for name in texts}
    positive = [name for name in numbers if train[name].min() > 0]

    def matrix(table: pd.DataFrame, logs: bool) -> np.ndarray:
        columns = table[numbers].fillna(medians).astype(float)
        if logs:
            smallest = train[positive].min()
            columns[positive] = np.log(columns[positive].clip(lower=smallest, axis=1))
        dummies = {
            f"{name}={level}": (table[name] == level).astype(float)
            for name in texts
            for level in levels[name]
        }
        return np.column_stack([columns.to_numpy(), *dummies.values()])

    predictions = {}
    for name, (build, logs) in PLAIN.items():
        model = make_pipeline(StandardScaler(), build()) if logs else build()
        model.fit(matrix(train, logs), np.log(train[target].to_numpy()))
        low, high = np.log(1e-30), np.log(1e30)
        predictions[name] = [
            np.exp(np.clip(model.predict(matrix(table, logs)), low, high)) if len(table) else
            np.empty(0) for table in others
        ]  # fmt: skip
    return predictions
