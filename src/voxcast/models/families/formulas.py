"""Fitted regressions as formulas: arrays of numbers, and how a prediction follows from them.

`formula_of` makes them of fitted scikit-learn regressors.

Each formula maps a matrix of finite numbers, shape (n, columns), to one value a row. It needs
numpy only, so a model that is read from files predicts without the library that fitted it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Rows that are predicted at once: a block of intermediate values stays in the processor's cache.
BLOCK_ROWS = 512
LARGEST_LOG = float(np.log(1e15))


class Formula(Protocol):
    """A fitted regression of one output."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return one value for each row of ``x``, shape (n, columns)."""


@dataclass(frozen=True, eq=False)
class Constant:
    """The same value for all rows."""

    value: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.value)


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of the columns; ``weights`` has shape (columns,)."""

    weights: np.ndarray
    intercept: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ self.weights + self.intercept)


@dataclass(frozen=True, eq=False)
class Standardised:
    """A formula of columns that are centred and scaled first."""

    mean: np.ndarray
    scale: np.ndarray
    formula: Formula

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.formula.predict((x - self.mean) / self.scale)


@dataclass(frozen=True, eq=False)
class Products:
    """A formula of the columns and of the products of each two."""

    formula: Formula

    def predict(self, x: np.ndarray) -> np.ndarray:
        first, second = np.triu_indices(x.shape[1], k=1)
        return self.formula.predict(np.hstack([x, x[:, first] * x[:, second]]))


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of several formulas."""

    terms: tuple[Formula, ...]

    def predict(self, x: np.ndarray) -> np.ndarray:
        first, *others = (term.predict(x) for term in self.terms)
        return sum(others, start=first)


@dataclass(frozen=True, eq=False)
class Exponentials:
    """A formula of columns, some of which, ``logs``, are logarithms of sizes: of the sizes."""

    logs: np.ndarray
    formula: Formula

    def columns(self, x: np.ndarray) -> np.ndarray:
        """Return the columns with sizes in millions, a row for each of ``x``."""
        columns = x.astype(float)
        columns[:, self.logs] = np.exp(np.minimum(columns[:, self.logs], LARGEST_LOG)) / 1e6
        return columns

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.formula.predict(self.columns(x))


@dataclass(frozen=True, eq=False)
class Law:
    """A constant and a part in proportion to each size, times powers of CPUs.

    Attributes
    ----------
    constant : float
        What does not depend on sizes.
    sizes, cpus : ndarray of int
        Columns of sizes, and of logarithms of CPUs.
    weights : ndarray
        By size, for each unit of it.
    powers : ndarray
        By column of CPUs: the natural logarithm changes by this for each unit.
    """

    constant: float
    sizes: np.ndarray
    weights: np.ndarray
    cpus: np.ndarray
    powers: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        factors = np.exp(np.minimum(x[:, self.cpus] @ self.powers, LARGEST_LOG))
        return np.asarray((self.constant + x[:, self.sizes] @ self.weights) * factors)


@dataclass(frozen=True, eq=False)
class PhaseTime:
    """Seconds of a phase: a constant and powers of sizes, times powers of parameters and CPUs.

    Attributes
    ----------
    constant : float
        Seconds that do not depend on sizes.
    sizes, parameters, cpus : ndarray of int
        Columns of logarithms of sizes, of parameters, and of logarithms of CPUs.
    size_logs, parameter_logs : ndarray
        Logarithms of the usual sizes and parameters.
    seconds : ndarray
        Seconds at each usual size.
    power : float
        Of all sizes.
    exponents, cpus_exponents : ndarray
        Of the parameters, and of CPUs.
    """

    constant: float
    sizes: np.ndarray
    size_logs: np.ndarray
    seconds: np.ndarray
    power: float
    parameters: np.ndarray
    parameter_logs: np.ndarray
    exponents: np.ndarray
    cpus: np.ndarray
    cpus_exponents: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        relative = np.minimum(x[:, self.sizes] - self.size_logs, LARGEST_LOG)
        sums = self.constant + np.exp(self.power * relative) @ self.seconds
        parameters = np.log(np.maximum(x[:, self.parameters], 1e-6)) - self.parameter_logs
        logs = parameters @ self.exponents + x[:, self.cpus] @ self.cpus_exponents
        return np.asarray(sums * np.exp(np.minimum(logs, LARGEST_LOG)))


@dataclass(frozen=True, eq=False)
class LogSum:
    """The logarithm of a sum of formulas, which is at least ``lowest``, plus an offset."""

    terms: tuple[Formula, ...]
    offset: float
    lowest: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        first, *others = (term.predict(x) for term in self.terms)
        return np.asarray(np.log(np.maximum(sum(others, start=first), self.lowest)) + self.offset)


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A perceptron with rectified units and one output.

    Attributes
    ----------
    weights, intercepts : tuple of ndarray
        By layer, shapes (inputs, units) and (units,).
    """

    weights: tuple[np.ndarray, ...]
    intercepts: tuple[np.ndarray, ...]

    def predict(self, x: np.ndarray) -> np.ndarray:
        units = x
        for layer, (weights, intercepts) in enumerate(
            zip(self.weights, self.intercepts, strict=True)
        ):
            units = (units if layer == 0 else np.maximum(units, 0)) @ weights + intercepts
        return units[:, 0]


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """The mean of a Gaussian process with a squared-exponential and a linear kernel.

    Attributes
    ----------
    rows : ndarray, shape (training rows, columns)
        Training rows.
    weights : ndarray, shape (training rows,)
        Weight of each training row.
    variance : float
        Height of the squared exponential.
    length : ndarray or float, shape (columns,) or ()
        Its length, of each column or of all.
    linear_offset : float or None
        Constant of the linear kernel; None without a linear kernel.
    mean, scale : float
        Of the training values.
    """

    rows: np.ndarray
    weights: np.ndarray
    variance: float
    length: np.ndarray | float
    linear_offset: float | None
    mean: float
    scale: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        # Column by column: |x|² + |t|² - 2xt would cancel where a row is close to a training row.
        distances = np.zeros((len(x), len(self.rows)))
        columns = (x / self.length).T, (self.rows / self.length).T
        for column, training in zip(*columns, strict=True):
            distances += (column[:, None] - training) ** 2
        kernel = self.variance * np.exp(-0.5 * distances)
        if self.linear_offset is not None:
            kernel += x @ self.rows.T + self.linear_offset
        return np.asarray(kernel @ self.weights * self.scale + self.mean)


@dataclass(frozen=True, eq=False)
class Trees:
    """A weighted sum of binary trees.

    Attributes
    ----------
    roots : ndarray of int, shape (trees,)
        First node of each tree.
    columns : ndarray of int, shape (nodes,)
        Column that a node compares.
    thresholds : ndarray, shape (nodes,)
        A row continues at the second child if its value is above the threshold.
    children : ndarray of int, shape (nodes, 2)
        Both children of a node; a leaf is its own child.
    values : ndarray, shape (nodes,)
        Value of a leaf.
    depth : int
        Largest number of comparisons from a root to a leaf.
    offset, weight : float
        The prediction is the offset plus the weight times the sum of the leaves' values.
    """

    roots: np.ndarray
    columns: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray
    values: np.ndarray
    depth: int
    offset: float
    weight: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        # The trees of scikit-learn compare columns that are rounded to 32 bits.
        x = x.astype(np.float32).astype(float)
        flat, children = np.ascontiguousarray(x).ravel(), self.children.ravel()
        first_value = np.arange(len(x))[:, None] * x.shape[1]
        nodes = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        for _ in range(self.depth):
            compared = flat.take(first_value + self.columns.take(nodes))
            nodes = children.take(2 * nodes + (compared > self.thresholds.take(nodes)))
        return np.asarray(self.offset + self.weight * self.values.take(nodes).sum(axis=1))


def predicted_columns(formulas: tuple[Formula, ...], x: np.ndarray) -> np.ndarray:
    """Return the values of all formulas, shape (n, formulas), block by block of rows."""
    predictions = np.empty((len(x), len(formulas)))
    for start in range(0, len(x), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        for output, formula in enumerate(formulas):
            predictions[block, output] = formula.predict(x[block])
    return predictions


KINDS: dict[str, type] = {  # as they are named in files
    "constant": Constant,
    "linear": Linear,
    "standardised": Standardised,
    "products": Products,
    "sum": Sum,
    "exponentials": Exponentials,
    "law": Law,
    "phase_time": PhaseTime,
    "log_sum": LogSum,
    "perceptron": Perceptron,
    "gaussian_process": GaussianProcess,
    "trees": Trees,
}


def formula_of(estimator: Any) -> Formula:
    """Return the formula of a fitted estimator of one of the families, which has one output."""
    match type(estimator).__name__:
        case "Pipeline":
            *steps, last = (step for _, step in estimator.steps)
            formula = formula_of(last)
            for step in reversed(steps):
                if type(step).__name__ == "PolynomialFeatures":
                    formula = Products(formula)
                else:
                    formula = Standardised(np.array(step.mean_), np.array(step.scale_), formula)
            return formula
        case "DummyRegressor":
            return Constant(float(estimator.constant_.item()))
        case "LinearRegression" | "Ridge":
            return Linear(np.array(estimator.coef_, dtype=float), float(estimator.intercept_))
        case "AdditiveLaw":
            law: Law = estimator.law_
            return law
        case "ResidualBoosting":
            return Sum((formula_of(estimator.line_), formula_of(estimator.trees_)))
        case "MLPRegressor":
            return Perceptron(tuple(estimator.coefs_), tuple(estimator.intercepts_))
        case "Process":
            return _gaussian_process(estimator.process_, estimator.mean_, estimator.scale_)
        case "DecisionTreeRegressor":
            return _trees([estimator])
        case "ExtraTreesRegressor":
            return _trees(estimator.estimators_, weight=1 / len(estimator.estimators_))
        case "GradientBoostingRegressor":
            offset, weight = float(estimator.init_.constant_.item()), estimator.learning_rate
            return _trees(estimator.estimators_[:, 0], offset=offset, weight=weight)
    raise TypeError(f"no formula of {estimator!r}")


def _gaussian_process(estimator: Any, mean: float, scale: float) -> GaussianProcess:
    # White noise is between a row and itself: it adds nothing between a row and a training row.
    kernel = {type(part).__name__: part for part in estimator.kernel_.get_params().values()}
    linear, length = kernel.get("DotProduct"), kernel["RBF"].length_scale
    return GaussianProcess(
        np.array(estimator.X_train_, dtype=float),
        np.array(estimator.alpha_, dtype=float).ravel(),
        float(kernel["ConstantKernel"].constant_value),
        np.array(length, dtype=float) if np.ndim(length) else float(length),
        None if linear is None else float(linear.sigma_0) ** 2,
        mean,
        scale,
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
