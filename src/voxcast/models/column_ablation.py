"""What close columns do to the error: it is measured with and without them on the same folds.

A column may give the target because it drives it, or because it is known only after the run. The
two errors tell the user what hangs on the answer.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.screening import without
from voxcast.models.families.family import family
from voxcast.models.metrics import scores
from voxcast.models.selection.time_limit import TimeUpError, time_limit
from voxcast.models.table_validation import TARGET, groups_of, validation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from voxcast.features.any_table import Columns
    from voxcast.features.hindsight import CloseColumns
    from voxcast.models.families.family import Params

MAX_ROWS = 1000
MAX_GROUPS = 6  # of close columns that are measured
_RIDGE: Params = {"alpha": 1e-3, "columns": "all", "products": False}
RECIPES: tuple[tuple[str, Params], ...] = (
    ("ridge", {**_RIDGE, "scale": "log"}),  # products
    ("ridge", {**_RIDGE, "scale": "relative"}),  # sums and differences
    ("boosted", {**family("boosted").defaults, "n_estimators": 100}),
)


@dataclass(frozen=True)
class Ablation:
    """The error with and without close columns.

    Attributes
    ----------
    error_with, error_without : float or None
        Median absolute error in percent, on held-out groups; None if not measured. Without it
        means without all close columns, so that one leak does not cover for another.
    """

    close: CloseColumns
    error_with: float | None
    error_without: float | None


def ablations(
    table: pd.DataFrame,
    columns: Columns,
    close: Sequence[CloseColumns],
    seed: int = 0,
    budget_s: float = math.inf,
) -> list[Ablation]:
    """Measure the error with each group of close columns, and without all of them.

    Parameters
    ----------
    table : DataFrame
        Rows with a label; a sample of a large one is used.
    columns : Columns
        Of which the close columns are features.
    budget_s : float
        Time; errors that take longer are not measured.
    """
    if not close:
        return []
    end = time.monotonic() + budget_s
    groups = groups_of(table, columns)
    table, groups = _sample(table, groups, seed)
    suspects = {name for group in close for name in group.columns}
    removed = [suspects, *(suspects - set(group.columns) for group in close[:MAX_GROUPS])]
    errors: list[float | None] = [None] * (len(close) + 1)
    try:
        for number, names in enumerate(removed):
            with time_limit(end - time.monotonic()):
                errors[number] = _error(table, without(columns, names), groups, seed)
    except TimeUpError:
        pass
    error_without, *errors_with = errors
    return [
        Ablation(group, error, None if error is None else error_without)
        for group, error in zip(close, errors_with, strict=True)
    ]


def _sample(table: pd.DataFrame, groups: np.ndarray, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return complete groups of at most `MAX_ROWS` rows, or at least two groups."""
    if len(table) <= MAX_ROWS:
        return table, groups
    names, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    count = max(2, int((sizes[order].cumsum() <= MAX_ROWS).sum()))
    rows = np.flatnonzero(np.isin(codes, order[:count]))
    return table.iloc[rows], groups[rows]


def _error(table: pd.DataFrame, columns: Columns, groups: np.ndarray, seed: int) -> float:
    """Return the median absolute error of the best of a few recipes, in percent."""
    validation = validation_of(table, columns, seed, groups=groups)
    actual = validation.table[TARGET]
    if not columns.numbers and not columns.texts:
        return scores(actual, np.full(len(actual), actual.median()))["median_ape"]
    return min(
        scores(
            actual,
            np.exp(validation.out_of_fold(name, params, "header")[:, 0]),
        )["median_ape"]
        for name, params in RECIPES
    )
