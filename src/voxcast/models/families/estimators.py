"""The scikit-learn estimators of the families, from parameters, a seed and column names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    from voxcast.models.families.law import AdditiveLaw

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
    from voxcast.models.families.residual_boosting import ResidualBoosting

    return ResidualBoosting(**params, random_state=seed)


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
