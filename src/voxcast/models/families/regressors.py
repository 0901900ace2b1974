"""The tabular regressor: fitting, prediction, files.

A regressor predicts the logarithms of several outputs at once; a network and a median are
interchangeable. scikit-learn fits a tabular regressor; its predictions are made by formulas.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxcast.errors import ModelError
from voxcast.models.families.formulas import KINDS, formula_of, predicted_columns
from voxcast.models.model_files import (
    joined,
    read_arrays,
    read_sealed,
    split_arrays,
    write_arrays,
    write_sealed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Scale = Literal["log", "raw", "relative"]

ARRAYS_FILE, REGRESSOR_FILE = "regressor.npz", "regressor.json"

# Predictions on the logarithmic scale are clipped to this factor outside the range of the training
# values: the exponential of an outlier could be arbitrarily large.
REACH_LOG = float(np.log(100))


# With fewer rows, threads cost more than they gain; where the cores are busy, many times more: the
# threads wait for each other, and 6,000 rows took 24 times as long as with one.
MANY_ROWS = 50_000


@functools.cache
def _threads() -> Any:
    # Inspecting the loaded libraries takes milliseconds; done once, after importing scikit-learn.
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class TabularRegressor:
    """One scikit-learn estimator per output, on the matrix alone.

    Parameters
    ----------
    build : callable
        Returns a new, unfitted estimator.
    scale : {"log", "raw", "relative"}
        Fit the logarithms, the outputs themselves, or the outputs with weights by which relative
        errors count equally for small and large outputs. Predictions not on the logarithmic scale
        are at least half the smallest training value, so that a logarithm exists.
    weights : str, optional
        Name of the estimator's argument for sample weights, for ``relative``.
    """

    def __init__(
        self,
        build: Callable[[], Any] | None,
        scale: Scale = "log",
        weights: str = "sample_weight",
    ) -> None:
        self.build = build
        self.scale = scale
        self.weights = weights

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> TabularRegressor:
        """Fit one estimator per column of ``y``."""
        from sklearn.exceptions import ConvergenceWarning

        if self.build is None:
            raise ModelError("a loaded regressor cannot be fitted")
        self.floor_, self.ceiling_ = y.min(axis=0) - np.log(2), y.max(axis=0)
        outputs = y if self.scale == "log" else np.exp(y)
        threads = 1 if len(x) < MANY_ROWS else None
        with warnings.catch_warnings(), _threads().limit(limits=threads, user_api="openmp"):
            # A perceptron stops at its maximum number of iterations by design.
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            self.formulas_ = tuple(
                formula_of(self.build().fit(x, column, **self._weights(column)))
                for column in outputs.T
            )
        return self

    def _weights(self, output: np.ndarray) -> dict[str, np.ndarray]:
        if self.scale != "relative":
            return {}
        weights = output**-2.0
        return {self.weights: weights / weights.mean()}

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms."""
        columns = predicted_columns(self.formulas_, x)
        if self.scale != "log":
            return np.asarray(np.log(np.maximum(columns, np.exp(self.floor_))))
        return np.asarray(np.clip(columns, self.floor_ - REACH_LOG, self.ceiling_ + REACH_LOG))

    def save(self, folder: Path) -> None:
        """Write ``regressor.json`` and ``regressor.npz``."""
        numbers = {"floor": self.floor_, "ceiling": self.ceiling_, "scale": self.scale}
        write_regressor(folder, {**numbers, "formulas": self.formulas_})

    @classmethod
    def load(cls, folder: Path) -> TabularRegressor:
        """Read what `save` wrote; errors as `read_regressor`."""
        content = read_regressor(folder)
        regressor = cls(None, content["scale"])
        regressor.formulas_ = content["formulas"]
        regressor.floor_, regressor.ceiling_ = content["floor"], content["ceiling"]
        return regressor


def write_regressor(folder: Path, content: dict[str, Any]) -> None:
    """Write numbers, arrays and formulas, by name."""
    arrays: dict[str, np.ndarray] = {}
    spec = {name: split_arrays(value, arrays, KINDS) for name, value in content.items()}
    sha256 = write_arrays(folder / ARRAYS_FILE, arrays)
    write_sealed(folder / REGRESSOR_FILE, {**spec, "arrays_sha256": sha256})


def read_regressor(folder: Path) -> dict[str, Any]:
    """Read what `write_regressor` wrote.

    Raises
    ------
    ModelError
        If a file is missing, damaged or of something else.
    """
    spec = read_sealed(folder / REGRESSOR_FILE)
    try:
        arrays = read_arrays(folder / ARRAYS_FILE, spec.pop("arrays_sha256"))
        return {name: joined(value, arrays, KINDS) for name, value in spec.items()}
    except (KeyError, TypeError) as error:
        raise ModelError(f"not a regressor: {error!r}", folder / REGRESSOR_FILE) from None
