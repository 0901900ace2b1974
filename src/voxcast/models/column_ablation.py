"""What close columns do to the error: it is measured with and without them on the same folds.

A column may give the target because it drives it, or because it is known only after the run. The
two errors tell the user what hangs on the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.screening import without
from voxcast.models.families.family import family
from voxcast.models.metrics import scores
from voxcast.models.table_validation import TARGET, groups_of, sampled, validation_of

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
    ("boosting", {**family("boosting").defaults, "max_iter": 100}),
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
    table: pd.DataFrame, columns: Columns, close: Sequence[CloseColumns], seed: int = 0
) -> list[Ablation]:
    """Measure the error with each group of close columns, and without all of them.

    Parameters
    ----------
    table : DataFrame
        Rows with a label; a sample of a large one is used.
    columns : Columns
        Of which the close columns are features.
    """
    if not close:
        return []
    groups = groups_of(table, columns)
    suspects = {name for group in close for name in group.columns}
    error_without = _error(table, without(columns, suspects), groups, seed)
    return [
        Ablation(
            group,
            _error(table, without(columns, suspects - set(group.columns)), groups, seed),
            error_without,
        )
        if number < MAX_GROUPS
        else Ablation(group, None, None)
        for number, group in enumerate(close)
    ]


def _error(table: pd.DataFrame, columns: Columns, groups: np.ndarray, seed: int) -> float:
    """Return the median absolute error of the best of a few recipes, in percent."""
    validation = sampled(validation_of(table, columns, seed, groups=groups), MAX_ROWS)
    actual = validation.table[TARGET]
    if not columns.numbers and not columns.texts:
        return scores(actual, np.full(len(actual), actual.median()))["median_ape"]
    return min(
        scores(
            actual,
            np.exp(validation.out_of_fold(name, params, "header").log_predictions[:, 0]),
        )["median_ape"]
        for name, params in RECIPES
    )
