"""Boosted trees for three quantiles: a median and its uncertainty for each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.errors import ModelError
from voxcast.models.families.formulas import predicted_columns
from voxcast.models.families.regressors import (
    REACH_LOG,
    read_regressor,
    threads_for,
    write_regressor,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUANTILES = (0.05, 0.5, 0.95)
MINIMUM_SPREAD = 0.01  # of a logarithm: at least one per cent of uncertainty


class QuantileRegressor:
    """Three estimators of each output's logarithm.

    Parameters
    ----------
    build : callable or None
        ``quantile`` to an unfitted estimator of that quantile; None for a loaded regressor.
    """

    def __init__(self, build: Callable[[float], Any] | None) -> None:
        self.build = build

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> QuantileRegressor:
        """Fit all quantiles of each column of ``y``."""
        from voxcast.models.families.conversion import formula_of

        if self.build is None:
            raise ModelError("a loaded regressor cannot be fitted")
        self.low_, self.high_ = y.min(axis=0), y.max(axis=0)
        with threads_for(len(x)):
            self.formulas_ = tuple(
                tuple(formula_of(self.build(quantile).fit(x, column)) for quantile in QUANTILES)
                for column in y.T
            )
        return self

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return the medians, shape (n, outputs)."""
        medians = predicted_columns(tuple(median for _, median, _ in self.formulas_), x)
        clipped: np.ndarray = np.clip(medians, self.low_ - REACH_LOG, self.high_ + REACH_LOG)
        return clipped

    def spread(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return the distance of both outer quantiles from the median, shape (n, outputs, 2)."""
        spreads = []
        for formulas in self.formulas_:
            low, median, high = predicted_columns(formulas, x).T
            # Fitted separately, quantiles may cross; so distances are clipped.
            spreads.append(np.stack([median - low, high - median], axis=-1))
        distances: np.ndarray = np.maximum(np.stack(spreads, axis=1), MINIMUM_SPREAD)
        return distances

    def save(self, folder: Path) -> None:
        """Write ``regressor.json`` and ``regressor.npz``."""
        write_regressor(folder, {"low": self.low_, "high": self.high_, "formulas": self.formulas_})

    @classmethod
    def load(cls, folder: Path) -> QuantileRegressor:
        """Read what `save` wrote; errors as `voxcast.models.families.regressors`."""
        content = read_regressor(folder)
        regressor = cls(None)
        regressor.formulas_ = content["formulas"]
        regressor.low_, regressor.high_ = content["low"], content["high"]
        return regressor
