"""The interface of regressors, and the tabular regressor: fitting, prediction, files.

A regressor predicts the logarithms of several outputs at once; a network and a median are
interchangeable. Files are skops with a fixed list of trusted types, never pickle.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from voxcast.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Scale = Literal["log", "raw", "relative"]

# Types of scikit-learn's estimators that are not on skops' own list. The list is fixed here, so
# that a model file cannot add types.
TRUSTED_TYPES = (
    "numpy.dtype",
    "voxcast.models.families.residual_boosting.ResidualBoosting",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    *(
        f"sklearn.gaussian_process.kernels.{kernel}"
        for kernel in ("ConstantKernel", "DotProduct", "Product", "RBF", "Sum", "WhiteKernel")
    ),
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.tree._tree.Tree",
)

# Predictions on the logarithmic scale are clipped to this factor outside the range of the training
# values: the exponential of an outlier could be arbitrarily large.
REACH_LOG = float(np.log(100))


# With fewer rows, threads cost more than they gain; on a busy machine, many times more.
MANY_ROWS = 5000


def threads_for(rows: int) -> AbstractContextManager[object]:
    """Limit scikit-learn to one thread within the context, unless there are many rows."""
    limits: AbstractContextManager[object] = _controller().limit(
        limits=1 if rows < MANY_ROWS else None, user_api="openmp"
    )
    return limits


@functools.cache
def _controller() -> Any:
    # Inspecting the loaded libraries takes milliseconds; done once, after importing scikit-learn.
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class Regressor(Protocol):
    """Interface of regressors; ``volumes`` is None for families that do not use voxels."""

    def fit(self, x: np.ndarray, y: np.ndarray, volumes: np.ndarray | None) -> Regressor:
        """Learn logarithms ``y``, shape (n, outputs), from ``x``, shape (n, columns)."""

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms, shape (n, outputs)."""

    def spread(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return the uncertainty below and above each prediction, shape (n, outputs, 2).

        It is relative, as the calibration scales it; all ones if it is the same for all runs.
        """

    def save(self, folder: Path) -> None:
        """Write the fitted regressor into ``folder``."""


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
        with warnings.catch_warnings(), threads_for(len(x)):
            # A perceptron stops at its maximum number of iterations by design.
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            self.estimators_ = [
                self.build().fit(x, column, **self._weights(column)) for column in outputs.T
            ]
        return self

    def _weights(self, output: np.ndarray) -> dict[str, np.ndarray]:
        if self.scale != "relative":
            return {}
        weights = output**-2.0
        return {self.weights: weights / weights.mean()}

    def predict(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return predicted logarithms."""
        with threads_for(len(x)):
            columns = np.column_stack([estimator.predict(x) for estimator in self.estimators_])
        if self.scale != "log":
            logs: np.ndarray = np.log(np.maximum(columns, np.exp(self.floor_)))
            return logs
        clipped: np.ndarray = np.clip(columns, self.floor_ - REACH_LOG, self.ceiling_ + REACH_LOG)
        return clipped

    def spread(self, x: np.ndarray, volumes: np.ndarray | None) -> np.ndarray:
        """Return ones: the uncertainty is the same for all runs."""
        return np.ones((len(x), len(self.estimators_), 2))

    def save(self, folder: Path) -> None:
        """Write ``tabular.skops``."""
        import skops.io

        content = {
            "estimators": self.estimators_,
            "floor": self.floor_,
            "ceiling": self.ceiling_,
            "scale": self.scale,
        }
        skops.io.dump(content, folder / "tabular.skops")

    @classmethod
    def load(cls, folder: Path) -> TabularRegressor:
        """Read ``tabular.skops``; errors as `trusted_load`."""
        content = trusted_load(folder / "tabular.skops")
        regressor = cls(None, content["scale"])
        regressor.estimators_ = content["estimators"]
        regressor.floor_, regressor.ceiling_ = content["floor"], content["ceiling"]
        return regressor


def trusted_load(path: Path) -> Any:
    """Read a skops file.

    Raises
    ------
    ModelError
        If the file is missing or contains a type that is not trusted.
    """
    import skops.io

    if not path.is_file():
        raise ModelError("no such file", path, "train the model again")
    foreign = set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED_TYPES)
    if foreign:
        raise ModelError(f"contains untrusted types {sorted(foreign)}", path, "do not load it")
    return skops.io.load(path, trusted=list(TRUSTED_TYPES))
