"""From fitted scikit-learn estimators to formulas of the same predictions."""

from __future__ import annotations

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

    # Columns, thresholds, children (a leaf is its own child) and values of one tree.
    Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


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


def _additive(estimator: Any) -> Formula:
    return Sum((formula_of(estimator.line_), formula_of(estimator.trees_)))


def _perceptron(estimator: Any) -> Formula:
    return Perceptron(tuple(estimator.coefs_), tuple(estimator.intercepts_))


def _gaussian_process(estimator: Any) -> Formula:
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
        float(np.asarray(estimator._y_train_mean).item()),
        float(np.asarray(estimator._y_train_std).item()),
    )


def _tree(estimator: Any) -> Formula:
    return _trees([_tree_nodes(estimator.tree_)], single_precision=True)


def _forest(estimator: Any) -> Formula:
    trees = [_tree_nodes(tree.tree_) for tree in estimator.estimators_]
    return _trees(trees, weight=1 / len(trees), single_precision=True)


def _boosting(estimator: Any) -> Formula:
    trees = []
    for (tree,) in estimator._predictors:  # one tree an iteration
        nodes, is_leaf = tree.nodes, tree.nodes["is_leaf"] > 0
        trees.append(
            _nodes(
                is_leaf,
                nodes["feature_idx"],
                nodes["num_threshold"],
                (nodes["left"], nodes["right"]),
                nodes["value"],
            )
        )
    baseline = float(estimator._baseline_prediction.item())
    return _trees(trees, offset=baseline)


def _tree_nodes(tree: Any) -> Nodes:
    children = (tree.children_left, tree.children_right)
    return _nodes(
        tree.children_left < 0, tree.feature, tree.threshold, children, tree.value[:, 0, 0]
    )


def _nodes(
    is_leaf: np.ndarray,
    columns: np.ndarray,
    thresholds: np.ndarray,
    children: tuple[np.ndarray, np.ndarray],
    values: np.ndarray,
) -> Nodes:
    itself = np.arange(len(is_leaf))
    return (
        np.where(is_leaf, 0, columns),
        np.where(is_leaf, np.inf, thresholds),
        np.stack([np.where(is_leaf, itself, child) for child in children], axis=1),
        np.array(values, dtype=float),
    )


def _trees(
    trees: Sequence[Nodes],
    *,
    offset: float = 0.0,
    weight: float = 1.0,
    single_precision: bool = False,
) -> Trees:
    sizes = [len(values) for *_, values in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    columns, thresholds, _, values = (
        np.concatenate([tree[k] for tree in trees]) for k in range(4)
    )
    children = np.concatenate([tree[2] + root for tree, root in zip(trees, roots, strict=True)])
    return Trees(
        roots.astype(np.int32),
        columns.astype(np.int32),
        thresholds,
        children.astype(np.int32),
        values,
        _depth(roots, children),
        offset,
        weight,
        single_precision,
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
    "DummyRegressor": _constant,
    "LinearRegression": _linear,
    "Ridge": _linear,
    "ResidualBoosting": _additive,
    "MLPRegressor": _perceptron,
    "GaussianProcessRegressor": _gaussian_process,
    "DecisionTreeRegressor": _tree,
    "RandomForestRegressor": _forest,
    "ExtraTreesRegressor": _forest,
    "HistGradientBoostingRegressor": _boosting,
}
