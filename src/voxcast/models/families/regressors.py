"""The tabular regressor, and the scikit-learn estimators of the families that it is fitted by.

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
from voxcast.models.families.formulas import KINDS, Law, formula_of, predicted_columns
from voxcast.models.model_files import (
    joined,
    read_arrays,
    read_sealed,
    split_arrays,
    write_arrays,
    write_sealed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


SIZES = ("header.megavoxels", "content.foreground_megavoxels")
CPUS = "allocation.log2_cpus"
LAW_COLUMNS = (*SIZES, CPUS)
ROUNDS = 10  # of the weights of the law, which have settled by then
OUTLIER = 2.0  # robust standard deviations, beyond which an error counts less (Huber)
SMALLEST_SD = 1e-3  # relative; below it all runs count alike
SMALLEST_SHARE = 1e-3  # of the measured value, where all sizes are zero
# Of Gaussian processes: bounds of lengths, and of the variance of the noise over the values', and
# the rows and steps by which they are fitted.
LENGTHS, NOISES = (0.1, 1e3), (1e-6, 1.0)
LENGTH_ROWS, LENGTH_STEPS = 200, 40
SUBSAMPLE = 0.7  # of the rows, for each boosted tree: trees that differ err less together


def median(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return the median of the training runs, by category if there are any."""
    from sklearn.dummy import DummyRegressor
    from sklearn.tree import DecisionTreeRegressor

    if not columns:
        return DummyRegressor(strategy="median")
    # Without columns of numbers, a tree of absolute error is the median of each category.
    return DecisionTreeRegressor(criterion="absolute_error", random_state=seed)


def linear(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return a linear regression."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def law(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return the additive law of voxels and CPUs."""
    return AdditiveLaw(columns)


def ridge(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return a ridge on standardised columns and, optionally, their pairwise products."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    steps: list[Any] = [StandardScaler()]
    if params.get("products"):
        pairs = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        steps += [pairs, StandardScaler()]
    return make_pipeline(*steps, Ridge(alpha=params["alpha"]))


def boosted(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return a ridge, and boosted trees on its residuals."""
    return ResidualBoosting(seed, **params)


def extra_trees(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(**params, random_state=seed, n_jobs=1)


def mlp(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return a perceptron on standardised columns."""
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    perceptron = MLPRegressor(
        hidden_layer_sizes=(params["units"],) * params["layers"],
        alpha=params["alpha"],
        solver="lbfgs",  # full batch, without a learning rate: the histories are small
        max_iter=300,
        random_state=seed,
    )
    return make_pipeline(StandardScaler(), perceptron)


def gaussian_process(params: dict[str, Any], seed: int, columns: Sequence[str]) -> Any:
    """Return a Gaussian process on standardised columns."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), Process(seed, **params))


class AdditiveLaw:
    """The law of images: 1 + voxels + voxels of the mask, times a power of the CPUs.

    It is fitted by non-negative least squares of relative errors; outliers count less. Its few
    coefficients can be read: seconds of a start, and for each million of voxels. It is the
    baseline that knows the size and the CPUs, and it continues out of range.

    Sizes and CPUs that the columns lack are not in it: without any it is a constant.

    Parameters
    ----------
    columns : sequence of str
        Names of the matrix's columns.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.sizes, self.cpus = (
            np.array([n for n, name in enumerate(columns) if name in names], int)
            for names in (SIZES, (CPUS,))
        )

    def fit(self, x: np.ndarray, y: np.ndarray) -> AdditiveLaw:
        """Fit sizes and the power of the CPUs in turns."""
        from scipy.optimize import nnls

        sizes = np.column_stack([np.ones(len(x)), x[:, self.sizes]])
        cpus = np.column_stack([np.ones(len(x)), x[:, self.cpus]])
        roots, powers = np.ones(len(x)), np.zeros(cpus.shape[1])
        for _ in range(ROUNDS):
            shares = sizes * (np.exp(cpus @ powers) / y)[:, None]
            coefficients, _ = nnls(roots[:, None] * shares, roots)
            ratios = -np.log(np.maximum(sizes @ coefficients / y, SMALLEST_SHARE))
            powers = np.linalg.lstsq(roots[:, None] * cpus, roots * ratios)[0]
            errors = np.abs(ratios - cpus @ powers)
            sd = max(1.4826 * float(np.median(errors)), SMALLEST_SD)
            roots = np.sqrt(1 / np.maximum(errors / (OUTLIER * sd), 1.0))
        constant, *weights = coefficients * np.exp(powers[0])
        self.law_ = Law(float(constant), self.sizes, np.array(weights), self.cpus, powers[1:])
        return self


class ResidualBoosting:
    """Ridge regression, and gradient boosting of its residuals.

    Out of range the trees are constant, so the sum continues the linear trend.

    Parameters
    ----------
    alpha : float
        Penalty of the ridge, on standardised columns.
    boosting
        Parameters of the trees.
    """

    def __init__(self, seed: int, alpha: float, **boosting: Any) -> None:
        self.seed = seed
        self.alpha = alpha
        self.boosting = boosting

    def fit(self, x: np.ndarray, y: np.ndarray) -> ResidualBoosting:
        """Fit the ridge, then the trees on its residuals."""
        from sklearn.ensemble import GradientBoostingRegressor

        self.line_ = ridge({"alpha": self.alpha}, self.seed, ()).fit(x, y)
        self.trees_ = GradientBoostingRegressor(
            max_depth=None, subsample=SUBSAMPLE if len(x) > 1 else 1.0, random_state=self.seed,
            **self.boosting,
        ).fit(x, y - self.line_.predict(x))  # fmt: skip
        return self


class Process:
    """A Gaussian process with an optional linear trend.

    Parameters
    ----------
    length : float
        Of the squared exponential, for one column; distances grow with the columns.
    noise : float
        Standard deviation, over that of the values.
    linear : bool
        Whether it has a linear trend.
    each : bool
        Whether the noise and a length for each column maximise the marginal likelihood of at most
        `LENGTH_ROWS` rows.
    """

    def __init__(
        self, seed: int, length: float, noise: float, linear: bool, each: bool = False
    ) -> None:
        self.seed = seed
        self.length = length
        self.noise = noise
        self.linear = linear
        self.each = each

    def fit(self, x: np.ndarray, y: np.ndarray) -> Process:
        """Fit lengths on some of the rows, then the process on all."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

        self.mean_, self.scale_ = float(y.mean()), float(y.std()) or 1.0
        values, length = (y - self.mean_) / self.scale_, self.length * x.shape[1] ** 0.5
        lengths = np.full(x.shape[1], length) if self.each else length
        kernel = ConstantKernel(1.0) * RBF(lengths, LENGTHS) + WhiteKernel(self.noise**2, NOISES)
        if self.linear:
            kernel = kernel + DotProduct(1.0)
        if self.each:
            rows = np.random.default_rng(self.seed).permutation(len(x))[:LENGTH_ROWS]
            fitted = GaussianProcessRegressor(kernel, optimizer=_most_likely)
            with warnings.catch_warnings():  # a column without an effect has the largest length
                warnings.simplefilter("ignore", ConvergenceWarning)
                kernel = fitted.fit(x[rows], values[rows]).kernel_
        process = GaussianProcessRegressor(kernel, optimizer=None, copy_X_train=False)
        self.process_ = process.fit(x, values)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the mean, shape (n,)."""
        return np.asarray(self.process_.predict(x) * self.scale_ + self.mean_)


def _most_likely(
    loss: Callable[..., Any], start: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return the logarithms of the kernel's parameters after some steps; more gain little."""
    from scipy.optimize import minimize

    options = {"maxiter": LENGTH_STEPS}
    best = minimize(loss, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    return best.x, best.fun


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
        from sklearn import config_context
        from sklearn.exceptions import ConvergenceWarning

        if self.build is None:
            raise ModelError("a loaded regressor cannot be fitted")
        self.floor_, self.ceiling_ = y.min(axis=0) - np.log(2), y.max(axis=0)
        outputs = y if self.scale == "log" else np.exp(y)
        threads = 1 if len(x) < MANY_ROWS else None
        with warnings.catch_warnings(), _threads().limit(limits=threads, user_api="openmp"):
            # A perceptron stops at its maximum number of iterations by design.
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            # Checking the parameters of each of hundreds of trees takes longer than growing them.
            with config_context(skip_parameter_validation=True):
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
