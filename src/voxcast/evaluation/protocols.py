"""Protocols: how much a model knows of the place in which a run is predicted.

A new scan is of a subject that was not measured, and comes on a day that was not measured either,
when the machine may be faster or slower, or on another machine. A few runs of other subjects
there, the local runs, give its speed; so does a reading, a second in which the kernels of the
metronome are timed just before the run.

Holdouts mimic other questions: the predicted kind of run is never in the training set. One that a
history does not support, such as another machine where there was only one, is reported with the
reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.model_selection import GroupKFold

from voxcast.features.rows import DOWN, FULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    Positions = np.ndarray

Place = Literal["new sitting", "known sitting", "new machine"]


@dataclass(frozen=True)
class Protocol:
    """Where judged runs are, and how much is known of that place.

    Attributes
    ----------
    name : str
    place : {"new sitting", "known sitting", "new machine"}
        Where they are; models also learn from runs of other subjects in a known sitting.
    local_runs : int
        Runs of other subjects in the same place, which give its speed and nothing else.
    reading : {"", "hidden", "known"}
        Whether what the kernels took before the judged runs and the local ones is known. Where it
        is not empty, only runs are judged before which they were timed.
    """

    name: str
    place: Place
    local_runs: int = 0
    reading: Literal["", "hidden", "known"] = ""


PROTOCOLS = (
    *(Protocol(f"new{count}", "new sitting", count) for count in (0, 2, 8)),
    Protocol("timed0", "new sitting", 0, "hidden"),
    Protocol("read0", "new sitting", 0, "known"),
    Protocol("read2", "new sitting", 2, "known"),
    Protocol("known", "known sitting"),
    *(Protocol(f"machine{count}", "new machine", count) for count in (0, 2, 8)),
    Protocol("machine_read0", "new machine", 0, "known"),
    Protocol("machine_read2", "new machine", 2, "known"),
)


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the runs to learn from, to judge, and to estimate the speed by."""

    train: Positions
    test: Positions
    local: Positions = field(default_factory=lambda: np.empty(0, dtype=int))


def days_of(runs: pd.DataFrame) -> pd.Series[str]:
    """Return the day on which each run was started."""
    return runs["started_at"].astype(str).str[:10]


def folds(runs: pd.DataFrame, place: Place, *, n_folds: int = 5, seed: int = 0) -> Iterator[Fold]:
    """Yield folds by subject, and by place unless it is known.

    Each run is judged once: on a new machine only reserved runs, otherwise only the rest. No run
    of a judged subject is learned from, none of the day of the judged sitting unless that is
    known, and none that is reserved.

    Parameters
    ----------
    runs : DataFrame
        With ``subject``, ``sitting``, ``day`` and ``reserved``.
    """
    sittings, days, subjects = (
        runs[name].astype(str).to_numpy() for name in ("sitting", "day", "subject")
    )
    reserved = runs["reserved"].to_numpy(dtype=bool)
    candidates = np.flatnonzero(reserved if place == "new machine" else ~reserved)
    if len(np.unique(subjects[candidates])) < n_folds:
        return
    splitter = GroupKFold(n_folds, shuffle=True, random_state=seed)
    for _, held_out in splitter.split(candidates, groups=subjects[candidates]):
        is_other = ~np.isin(subjects, subjects[candidates[held_out]])
        is_learned = is_other & ~reserved
        test = candidates[held_out]
        if place == "new machine":
            yield Fold(np.flatnonzero(is_learned), test, np.flatnonzero(is_other & reserved))
            continue
        if place == "known sitting":
            yield Fold(np.flatnonzero(is_learned), test, test[:0])
            continue
        for sitting in np.unique(sittings[test]):
            is_here = sittings == sitting
            # Sittings of one day are much alike.
            train = np.flatnonzero(is_learned & ~np.isin(days, days[is_here]))
            yield Fold(train, test[is_here[test]], np.flatnonzero(is_learned & is_here))


def draws(fold: Fold, count: int, n_draws: int, seed: int = 0) -> list[Positions]:
    """Return random choices of local runs; empty if the sitting does not have as many."""
    if count > len(fold.local):
        return []
    if count == 0:
        return [fold.local[:0]]
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(fold.local, count, replace=False)) for _ in range(n_draws)]


HOLDOUTS = {
    "subject": "a new subject, everything else as measured",
    "configuration": "a new subject in an allocation that was never measured",
    "scale": "a new subject at full scale, after scaled-down runs alone",
    "parameters": "parameters of the application that were never measured",
    "host": "a new subject on a machine that was never measured",
}


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
