"""Protocols: how much a model knows of the place in which a run is predicted.

A new scan is of a subject that was not measured, and comes on a day that was not measured either,
when the machine may be faster or slower, or on another machine. A few runs
of other subjects there, the local runs, give its speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.model_selection import GroupKFold

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
    """

    name: str
    place: Place
    local_runs: int = 0


PROTOCOLS = (
    *(Protocol(f"new{count}", "new sitting", count) for count in (0, 2, 8)),
    Protocol("known", "known sitting"),
    *(Protocol(f"machine{count}", "new machine", count) for count in (0, 2, 8)),
)


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the runs to learn from, to judge, and to estimate the speed by."""

    train: Positions
    test: Positions
    local: Positions


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
