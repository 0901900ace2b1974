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
    table: pd.DataFrame,
    columns: Columns,
    seed: int,
    censored: Sequence[str],
    groups: np.ndarray | None = None,
) -> Validation:
    """Return the training rows; of a large table, as many complete groups as allowed.

    Parameters
    ----------
    groups : ndarray of str, shape (n_rows,), optional
        By default those of `groups_of`.
    """
    runs = feature_table(table, columns)
    runs["subject"] = groups_of(table, columns) if groups is None else groups
    runs[TARGET] = table[columns.target].astype(float)
    runs = runs.reset_index(drop=True)
    pairs = {("", name) for name in censored}
    return sampled(Validation(runs, None, INNER, seed, (TARGET,), censored=pairs), MAX_ROWS)


def groups_of(table: pd.DataFrame, columns: Columns) -> np.ndarray:
    """Return the group of each row: that of the group column, or the rows of equal features.

    Repeats of one configuration must not fall on both sides of a fold.
    """
    from pandas.util import hash_pandas_object

    if columns.group is not None:
        groups = table[columns.group]
    else:
        groups = hash_pandas_object(feature_table(table, columns), index=False)
    names: np.ndarray = groups.astype(str).to_numpy()
    return names


def sampled(validation: Validation, rows: int) -> Validation:
    """Return complete groups of at most ``rows`` rows, or at least two groups."""
    runs = validation.table
    if len(runs) <= rows:
        return validation
    names = np.random.default_rng(validation.seed).permutation(runs["subject"].unique())
    sizes = runs["subject"].value_counts().loc[names].cumsum()
    chosen = set(names[: max(2, int((sizes <= rows).sum()))])
    return validation.part(np.flatnonzero(runs["subject"].isin(chosen)))
