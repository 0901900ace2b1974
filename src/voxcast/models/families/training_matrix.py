"""The encoder of training runs, and their matrix."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from voxcast.features.table import rows_of
from voxcast.models.families.encoder import Encoder
from voxcast.models.families.family import NO_COLUMN

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def training_matrix(
    runs: pd.DataFrame,
    target_logs: np.ndarray,
    only: tuple[str, ...],
    *,
    content: bool,
    on_logs: bool,
) -> tuple[Encoder, np.ndarray]:
    """Fit an encoder to runs and encode them.

    Parameters
    ----------
    runs : DataFrame
        Training runs with their features and, if there are any, subjects.
    target_logs : ndarray, shape (n_runs, outputs)
        Logarithms of the targets, for the effects of texts with many values.
    only : tuple of str
        Names or prefixes of the numbers that a family may use; empty for all.
    content, on_logs
        See `Encoder.fit`.

    Returns
    -------
    encoder : Encoder
        The encoder of other rows.
    matrix : ndarray, shape (n_runs, columns)
        The matrix of the runs, each encoded without the effects of its own group.
    """
    rows = rows_of(runs)
    subjects = runs["subject"].astype(str).tolist() if "subject" in runs else []
    fit = partial(Encoder.fit, rows, content=content, on_logs=on_logs, subjects=subjects)
    encoder = fit(only=only)
    if only and only != NO_COLUMN and not encoder.numbers:
        # Tables of other tools have none of the size columns that the family is restricted to.
        encoder = fit()
    if only == NO_COLUMN:
        return encoder, encoder.transform(rows)
    return encoder.with_effects(rows, target_logs, subjects or list(range(len(rows))))
