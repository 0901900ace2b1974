"""Splits that mimic a use case: the predicted kind of run is never in the training set.

A split that a history does not support, such as another machine where there was only one, is
reported with the reason; it is not imitated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.evaluation.recorded_table import DOWN, FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

HOLDOUTS = {
    "subject": "a new subject, everything else as measured",
    "configuration": "a new subject in an allocation that was never measured",
    "scale": "a new subject at full scale, after scaled-down runs alone",
    "parameters": "parameters of the application that were never measured",
    "host": "a new subject on a machine that was never measured",
}


@dataclass(frozen=True)
class Fold:
    """Positions of the training and the test runs."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class HoldoutSplit:
    """The folds of a holdout, or the reason why there are none."""

    holdout: str
    folds: tuple[Fold, ...]
    reason: str | None = None


def split(table: pd.DataFrame, holdout: str, *, folds: int = 5, seed: int = 0) -> HoldoutSplit:
    """Split the runs of one application.

    Parameters
    ----------
    table : DataFrame
        Runs of one application at all scales, see `voxcast.evaluation.recorded_table.of_app`.
    holdout : str
        The held-out kind, one of `HOLDOUTS`.
    folds : int
        Maximum number of folds.
    """
    full = (table["scale"] == FULL).to_numpy()
    scaled_down = (table["scale"] == DOWN).to_numpy()
    if holdout == "subject":
        pairs = [(full & ~held, full & held) for held in _held_subjects(table, folds, seed)]
    elif holdout == "scale":
        if not scaled_down.any():
            return HoldoutSplit(holdout, (), "no scaled-down runs")
        pairs = [(scaled_down & ~held, full & held) for held in _held_subjects(table, folds, seed)]
    elif holdout == "parameters":
        parameters = table["parameters_json"].to_numpy()
        if table.loc[full, "parameters_json"].nunique() < folds:
            return HoldoutSplit(holdout, (), "measured with one set of parameters")
        pairs = [
            (full & ~np.isin(parameters, names), full & np.isin(parameters, names))
            for names in _groups(parameters[full], folds, seed)
        ]
    else:
        column = {"configuration": "cpus", "host": "host_id"}[holdout]
        values = sorted(table.loc[full, column].unique())
        if len(values) < 2:
            noun = {"configuration": "allocation", "host": "machine"}[holdout]
            return HoldoutSplit(holdout, (), f"measured on one {noun}")
        pairs = [
            (full & ~held & other, full & held & ~other)
            for value in values
            for other in [(table[column] != value).to_numpy()]
            for held in _held_subjects(table, folds, seed)
        ]
    positions = (Fold(np.flatnonzero(train), np.flatnonzero(test)) for train, test in pairs)
    return HoldoutSplit(holdout, tuple(f for f in positions if len(f.train) and len(f.test)))


def _held_subjects(table: pd.DataFrame, folds: int, seed: int) -> Iterator[np.ndarray]:
    """Yield for each fold a mask of the runs whose subjects are held out."""
    subjects = table["subject"].to_numpy()
    for names in _groups(subjects, folds, seed):
        yield np.isin(subjects, names)


def _groups(names: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    distinct = np.random.default_rng(seed).permutation(np.unique(names.astype(str)))
    return np.array_split(distinct, min(folds, len(distinct)))
