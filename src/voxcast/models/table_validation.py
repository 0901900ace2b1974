"""The rows of any table as the training runs of a validation, sampled where there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voxcast.features.any_table import Columns, feature_table
from voxcast.models.selection.cross_validation import Validation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

TARGET = "target"
MAX_ROWS = 20_000  # a larger table is sampled
INNER = 3  # folds


def validation_of(
    table: pd.DataFrame, columns: Columns, seed: int, censored: Sequence[str]
) -> Validation:
    """Return the training rows; of a large table, as many complete groups as allowed."""
    runs = feature_table(table, columns)
    groups = np.arange(len(table)) if columns.group is None else table[columns.group]
    runs["subject"] = np.asarray(groups).astype(str)
    runs[TARGET] = table[columns.target].astype(float)
    runs = runs.reset_index(drop=True)
    pairs = {("", name) for name in censored}
    return sampled(Validation(runs, None, INNER, seed, (TARGET,), censored=pairs), MAX_ROWS)


def sampled(validation: Validation, rows: int) -> Validation:
    """Return complete groups of at most ``rows`` rows, or at least two groups."""
    runs = validation.table
    if len(runs) <= rows:
        return validation
    names = np.random.default_rng(validation.seed).permutation(runs["subject"].unique())
    sizes = runs["subject"].value_counts().loc[names].cumsum()
    chosen = set(names[: max(2, int((sizes <= rows).sum()))])
    return validation.part(np.flatnonzero(runs["subject"].isin(chosen)))
