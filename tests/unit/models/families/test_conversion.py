"""Formulas predict what the scikit-learn estimators predict that they were converted from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from voxcast.features.rows import Row
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import FAMILIES
from voxcast.models.families.formulas import BLOCK_ROWS, formula_of, predicted_columns

RELATIVE_ERROR = 1e-9
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ridge": [{"products": True}, {"scale": "log", "columns": "all"}],
    "boosted": [{"alpha": 1e4}, {"max_leaf_nodes": 31, "min_samples_leaf": 2}],
    "mlp": [{"layers": 2}],
    "gaussian_process": [{"linear": False}, {"noise": 1e-3}],
    "extra_trees": [{"max_features": 0.3, "min_samples_leaf": 3}],
}
CASES = [
    (name, {**family.defaults, **changes})
    for name, family in FAMILIES.items()
    if family.estimator is not None and name != "law"  # which is a formula itself
    for changes in ({}, *VARIANTS.get(name, []))
]


def random_rows(seed: int, count: int) -> list[Row]:
    """Return rows of very different scales, with missing numbers and categories."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(count):
        size = float(rng.uniform(0.5, 40))
        row: Row = {
            "app": "segment",
            "parameter.mode": str(rng.choice(["fast", "slow", "exact"])),
            "header.megavoxels": size,
            "header.log_voxels": float(np.log(1e6 * size)),
            "content.foreground_megavoxels": size * float(rng.uniform(0.1, 0.6)),
            "allocation.log2_cpus": float(rng.integers(0, 4)),
            "parameter.bytes": float(rng.integers(1, 10)) * 1e9,
        }
        if rng.random() < 0.7:
            row["content.noise_ratio"] = float(rng.uniform(0.001, 0.1))
        rows.append(row)
    return rows


def matrices() -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Return columns, training matrix, two outputs, and queries of several blocks."""
    rows = random_rows(0, 90)
    encoder = Encoder.fit(rows, content=True)
    x = encoder.transform(rows)
    rng = np.random.default_rng(1)
    size = x[:, encoder.columns.index("header.megavoxels")]
    y = np.log(np.column_stack([1 + 3 * size, 2e8 + 8e7 * size])) + rng.normal(0, 0.1, (90, 2))
    queries = random_rows(2, 2 * BLOCK_ROWS + 7)
    queries[0] = {"app": "unheard", "header.megavoxels": 1e3}  # nearly all of it is missing
    queries[1] = {**queries[1], "parameter.mode": "of another release"}
    return encoder.columns, x, y, encoder.transform(queries)


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda case: str(case))
def test_formulas_predict_what_the_estimators_predict(name: str, params: dict[str, Any]) -> None:
    columns, x, y, queries = matrices()
    family = FAMILIES[name]
    assert family.estimator is not None
    if family.scale(params) != "log":
        y = np.exp(y)
    for output in y.T:
        estimator = family.estimator(params, 0, columns).fit(x, output)
        formula = formula_of(estimator)
        parts = [estimator]
        if name == "boosted":
            parts = [estimator.line_, estimator.trees_]
        for matrix in (x, queries, queries[:1]):
            expected = sum(part.predict(matrix) for part in parts)
            np.testing.assert_allclose(
                predicted_columns((formula,), matrix)[:, 0], expected, rtol=RELATIVE_ERROR
            )
            np.testing.assert_allclose(formula.predict(matrix[:3]), expected[:3], rtol=1e-9)


def test_the_median_of_no_columns_is_a_constant() -> None:
    estimator = FAMILIES["median"].estimator
    assert estimator is not None
    formula = formula_of(estimator({}, 0, []).fit(np.empty((3, 0)), np.array([1.0, 4.0, 2.0])))
    assert formula.predict(np.empty((2, 0))).tolist() == [2.0, 2.0]


def test_a_tree_of_one_leaf_and_a_value_on_a_threshold() -> None:
    leaf = formula_of(DecisionTreeRegressor().fit(np.zeros((4, 1)), np.full(4, 3.0)))
    assert leaf.predict(np.array([[5.0]])).tolist() == [3.0]
    x = np.array([[0.1], [0.3], [0.7], [0.9]])
    tree = DecisionTreeRegressor(random_state=0).fit(x, np.arange(4.0))
    on_thresholds = tree.tree_.threshold[tree.tree_.children_left >= 0][:, None]
    around = np.vstack([on_thresholds, on_thresholds + 1e-9, on_thresholds - 1e-9])
    assert formula_of(tree).predict(around).tolist() == tree.predict(around).tolist()
