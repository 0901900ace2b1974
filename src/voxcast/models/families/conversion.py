"""From fitted scikit-learn estimators to formulas of the same predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxcast.models.families.formulas import (
    Constant,
    Formula,
    GaussianProcess,
    Linear,
    Perceptron,
    Products,
    Standardised,
    Sum,
    Trees,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def formula_of(estimator: Any) -> Formula:
    """Return the formula of a fitted estimator of one of the families.

    The estimator predicts one output; a chain of steps ends in an estimator.
    """
    name = type(estimator).__name__
    if name == "Pipeline":
        *steps, last = (step for _, step in estimator.steps)
        formula = formula_of(last)
        for step in reversed(steps):
            formula = _after(step, formula)
        return formula
    return _FORMULAS[name](estimator)


def _after(step: Any, formula: Formula) -> Formula:
    """Return the formula of a matrix that ``step`` transforms first."""
    if type(step).__name__ == "PolynomialFeatures":
        return Products(formula)
    return Standardised(np.array(step.mean_), np.array(step.scale_), formula)


def _constant(estimator: Any) -> Formula:
    return Constant(float(estimator.constant_.item()))


def _linear(estimator: Any) -> Formula:
    return Linear(np.array(estimator.coef_, dtype=float), float(estimator.intercept_))


def _residual_boosting(estimator: Any) -> Formula:
    return Sum((formula_of(estimator.line_), formula_of(estimator.trees_)))


def _perceptron(estimator: Any) -> Formula:
    return Perceptron(tuple(estimator.coefs_), tuple(estimator.intercepts_))


def _standardised_output(estimator: Any) -> Formula:
    output = estimator.transformer_
    mean, scale = float(output.mean_.item()), float(output.scale_.item())
    return replace(_gaussian_process(estimator.regressor_), mean=mean, scale=scale)


def _gaussian_process(estimator: Any) -> GaussianProcess:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

    # White noise is between a row and itself: it adds nothing between a row and a training row.
    parts: list[Any] = list(estimator.kernel_.get_params().values())
    constant, exponential = (
        next(part for part in parts if isinstance(part, kind)) for kind in (ConstantKernel, RBF)
    )
    linear = next((part for part in parts if isinstance(part, DotProduct)), None)
    return GaussianProcess(
        np.array(estimator.X_train_, dtype=float),
        np.array(estimator.alpha_, dtype=float).ravel(),
        float(constant.constant_value),
        float(exponential.length_scale),
        None if linear is None else float(linear.sigma_0) ** 2,
        mean=0.0,
        scale=1.0,
    )


def _tree(estimator: Any) -> Formula:
    return _trees([estimator])


def _mean_of_trees(estimator: Any) -> Formula:
    return _trees(estimator.estimators_, weight=1 / len(estimator.estimators_))


def _boosted_trees(estimator: Any) -> Formula:
    return _trees(
        estimator.estimators_[:, 0],
        offset=float(estimator.init_.constant_.item()),
        weight=estimator.learning_rate,
    )


def _trees(estimators: Sequence[Any], *, offset: float = 0.0, weight: float = 1.0) -> Trees:
    trees = [estimator.tree_ for estimator in estimators]
    sizes = [tree.node_count for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    columns, thresholds, left, right, values = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("feature", "threshold", "children_left", "children_right", "value")
    )
    is_leaf, itself = left < 0, np.arange(len(left))
    children = np.stack([left, right], axis=1) + np.repeat(roots, sizes)[:, None]
    children = np.where(is_leaf[:, None], itself[:, None], children).astype(np.int32)
    return Trees(
        roots,
        np.where(is_leaf, 0, columns).astype(np.int32),
        np.where(is_leaf, np.inf, thresholds),
        children,
        values[:, 0, 0],
        _depth(roots, children),
        offset,
        weight,
    )


def _depth(roots: np.ndarray, children: np.ndarray) -> int:
    depth, nodes = 0, roots
    while True:
        below = children[nodes]
        inner = (below != nodes[:, None]).any(axis=1)
        if not inner.any():
            return depth
        depth, nodes = depth + 1, below[inner].ravel()


_FORMULAS: dict[str, Callable[[Any], Formula]] = {
    "AdditiveLaw": lambda estimator: estimator.law_,
    "DummyRegressor": _constant,
    "LinearRegression": _linear,
    "Ridge": _linear,
    "MLPRegressor": _perceptron,
    "TransformedTargetRegressor": _standardised_output,
    "DecisionTreeRegressor": _tree,
    "ExtraTreesRegressor": _mean_of_trees,
    "GradientBoostingRegressor": _boosted_trees,
    "ResidualBoosting": _residual_boosting,
}
