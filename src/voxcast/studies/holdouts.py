"""Splits that mimic a question: what is asked about is never on the side that is learned from.

A split that a history cannot support, such as another machine where there was one, is named with
the reason; it is not imitated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from voxcast.studies.recorded_table import DOWN, FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

QUESTIONS = {
    "subject": "a new subject, everything else as measured",
    "configuration": "a new subject in an allocation that was never measured",
    "scale": "a new subject at full scale, after scaled-down runs alone",
    "parameters": "parameters of the application that were never measured",
    "host": "a new subject on a machine that was never measured",
}


@dataclass(frozen=True)
class Fold:
    """Positions of the runs to learn from and of those asked about."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Split:
    """The folds of a question, or why there are none."""

    question: str
    folds: tuple[Fold, ...]
    why_not: str | None = None


def split(table: pd.DataFrame, question: str, *, folds: int = 5, seed: int = 0) -> Split:
    """Return the split of one application's runs for a question.

    Parameters
    ----------
    table : DataFrame
        Runs of one application at all scales, see `voxcast.studies.recorded_table.of_app`.
    question : str
        One of `QUESTIONS`.
    folds : int
        At most so many.
    """
    full = (table["scale"] == FULL).to_numpy()
    down = (table["scale"] == DOWN).to_numpy()
    if question == "subject":
        found = [Fold(_at(full & ~held), _at(full & held)) for held in _held(table, folds, seed)]
    elif question == "scale":
        if not down.any():
            return Split(question, (), "no scaled-down runs")
        found = [Fold(_at(down & ~held), _at(full & held)) for held in _held(table, folds, seed)]
    elif question == "parameters":
        if table.loc[full, "parameters_json"].nunique() < folds:
            return Split(question, (), "measured with one set of parameters")
        points = table["parameters_json"].to_numpy()
        held = _parts(points[full], folds, seed)
        found = [
            Fold(_at(full & ~np.isin(points, own)), _at(full & np.isin(points, own)))
            for own in held
        ]
    else:
        column = {"configuration": "cpus", "host": "host_id"}[question]
        kinds = sorted(table.loc[full, column].unique())
        if len(kinds) < 2:
            one = {"configuration": "allocation", "host": "machine"}[question]
            return Split(question, (), f"measured on one {one}")
        found = [
            Fold(_at(full & ~held & other), _at(full & held & ~other))
            for kind in kinds
            for other in [(table[column] != kind).to_numpy()]
            for held in _held(table, folds, seed)
        ]
    return Split(question, tuple(f for f in found if len(f.train) and len(f.test)))


def _held(table: pd.DataFrame, folds: int, seed: int) -> Iterator[np.ndarray]:
    """Give which runs are of the subjects held out, part by part."""
    subjects = table["subject"].to_numpy()
    for own in _parts(subjects, folds, seed):
        yield np.isin(subjects, own)


def _parts(names: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    distinct = np.random.default_rng(seed).permutation(np.unique(names.astype(str)))
    return np.array_split(distinct, min(folds, len(distinct)))


def _at(chosen: np.ndarray) -> np.ndarray:
    return np.flatnonzero(chosen)
