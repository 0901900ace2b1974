"""The scikit-learn estimators of the families, from parameters, a seed and column names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.families.formulas import Law

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = ("header.megavoxels", "content.foreground_megavoxels")
CPUS = "allocation.log2_cpus"
LAW_COLUMNS = (*SIZES, CPUS)
ROUNDS = 10  # of the weights of the law, which have settled by then
OUTLIER = 2.0  # robust standard deviations, beyond which an error counts less (Huber)
SMALLEST_SD = 1e-3  # relative; below it all runs count alike
SMALLEST_SHARE = 1e-3  # of the measured value, where all sizes are zero
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
    """Return a Gaussian process of fixed length and noise, with an optional linear trend."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    length = params["length"] * max(len(columns), 1) ** 0.5  # distances grow with the columns
    kernel = ConstantKernel(1.0) * RBF(length) + WhiteKernel(params["noise"] ** 2)
    if params["linear"]:
        kernel = kernel + DotProduct(1.0)
    process = GaussianProcessRegressor(
        kernel, optimizer=None, random_state=seed, copy_X_train=False
    )
    outputs = TransformedTargetRegressor(process, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), outputs)


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
