"""Protocols: what is known of a run that is predicted, of its subject and of its sitting.

A new scan is of a subject that was not measured, and comes in a sitting that was not measured
either: on another day, when the machine may be faster or slower. A few runs of other subjects in
that sitting, the local runs, tell its speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import GroupKFold

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    Positions = np.ndarray


@dataclass(frozen=True)
class Protocol:
    """What is known of the judged runs.

    Attributes
    ----------
    name : str
    local_runs : int
        Runs of other subjects in the judged sitting, which tell its speed and nothing else.
    knows_sitting : bool
        Whether models also learn from runs of other subjects in the judged sitting.
    """

    name: str
    local_runs: int = 0
    knows_sitting: bool = False


PROTOCOLS = (
    Protocol("new0"),
    Protocol("new2", local_runs=2),
    Protocol("new8", local_runs=8),
    Protocol("known", knows_sitting=True),
)


@dataclass(frozen=True, eq=False)
class Fold:
    """Positions of the runs that are learned from, that are judged, and that tell the speed."""

    train: Positions
    test: Positions
    local: Positions


def folds(
    runs: pd.DataFrame, *, knows_sitting: bool, n_folds: int = 5, seed: int = 0
) -> Iterator[Fold]:
    """Yield folds by subject, and by sitting unless it is known.

    Every run is judged once. No run of a judged subject is learned from, and none of the judged
    sitting unless it is known.

    Parameters
    ----------
    runs : DataFrame
        With ``subject`` and ``sitting``.
    """
    sittings = runs["sitting"].astype(str).to_numpy()
    subjects = runs["subject"].astype(str).to_numpy()
    splitter = GroupKFold(n_folds, shuffle=True, random_state=seed)
    everywhere = np.arange(len(runs))
    for others, held_out in splitter.split(everywhere, groups=subjects):
        if knows_sitting:
            yield Fold(others, held_out, others[:0])
            continue
        for sitting in np.unique(sittings[held_out]):
            in_sitting = sittings == sitting
            yield Fold(
                others[~in_sitting[others]],
                held_out[in_sitting[held_out]],
                others[in_sitting[others]],
            )


def draws(fold: Fold, count: int, n_draws: int, seed: int = 0) -> list[Positions]:
    """Return random choices of local runs; empty if the sitting does not have as many."""
    if count > len(fold.local):
        return []
    if count == 0:
        return [fold.local[:0]]
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(fold.local, count, replace=False)) for _ in range(n_draws)]
